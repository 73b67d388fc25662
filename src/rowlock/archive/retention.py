"""Retention of the archive by age and size: ended runs are removed completely, the oldest first.

By size those of the project that takes most go first, so that nobody pushes out the runs of others, and a project's favourites last. The
archive keeps a note of when it last removed runs, and which."""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from rowlock import objects
from rowlock.archive.database import MARKED, MARKS, WRITES, Statement, put_marks, put_note, read_marks

DEFAULT_AGE = 90 * 86400.0
DEFAULT_SIZE = 4 << 30
CUT_NOTE = "cut"
_RUNS_PER_STEP = 100
_RUNS_PER_LOOK = 10
_NO_FAVOURITE = f"AND uid NOT IN ({MARKED} AND json_extract({MARKS}, '$.favourite'))"
_TARGET = 0.9
"""The share of the allowed size that a cut leaves, so that the next one is not due at once."""


@dataclass(frozen=True, slots=True)
class Retention:
    """`age`: seconds for which a run is kept after its end; `size`: bytes that all runs together may take."""

    age: float = DEFAULT_AGE
    size: int = DEFAULT_SIZE


def expired_runs(database: sqlite3.Connection, retention: Retention, now: float) -> list[str]:
    """The uids of up to `_RUNS_PER_STEP` runs that ended, or were deleted, too long ago."""
    sql = f"SELECT uid FROM runs WHERE max(coalesce(deleted, 0), coalesce(finished, 0)) BETWEEN 1 AND ? {_NO_FAVOURITE} LIMIT ?"
    return [uid for (uid,) in database.execute(sql, (now - retention.age, _RUNS_PER_STEP))]


def stored_bytes(database: sqlite3.Connection) -> int:
    """Bytes on disk: the used pages of the database, and the log files."""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    (files,) = database.execute("SELECT coalesce(sum(stored), 0) FROM logs WHERE file != ''").fetchone()
    return int((pages - free) * size + files)


class StoredRun(NamedTuple):
    """What a run takes up. `place`: its namespace, by uid; `ended`: when it did, None while it runs."""

    uid: str
    place: str
    size: int
    ended: float | None
    is_favourite: bool


def stored_runs(database: sqlite3.Connection) -> list[StoredRun]:
    """All runs. Raises sqlite3.Error."""
    sizes = defaultdict[str, int](int)
    for table, size in (("pods", "length(body)"), ("logs", "stored"), ("samples", "length(body)")):
        for uid, total in database.execute(f"SELECT run_uid, sum({size}) FROM {table} GROUP BY run_uid"):
            sizes[uid] += total
    favourites = {uid for (uid,) in database.execute(f"{MARKED} AND json_extract({MARKS}, '$.favourite')")}
    sql = "SELECT uid, coalesce(nullif(namespace_uid, ''), namespace), length(body), coalesce(finished, deleted) FROM runs"
    return [
        StoredRun(uid, place, size + sizes[uid], ended, uid in favourites)
        for uid, place, size, ended in database.execute(sql)
    ]


def removal_order(runs: Iterable[StoredRun]) -> Iterator[str]:
    """The uids of ended runs in the order in which they go: each time one of the place that takes most then, the earliest end first,
    favourites last."""
    sizes, ended = defaultdict[str, int](int), defaultdict[str, list[StoredRun]](list)
    for run in runs:
        sizes[run.place] += run.size
        if run.ended is not None:
            ended[run.place].append(run)
    for own in ended.values():
        own.sort(key=lambda run: (run.is_favourite, run.ended), reverse=True)
    largest = [(-sizes[place], place) for place in ended]
    heapq.heapify(largest)
    while largest:
        size, place = heapq.heappop(largest)
        run = ended[place].pop()
        yield run.uid
        if ended[place]:
            heapq.heappush(largest, (size + run.size, place))


def cut(
    database: sqlite3.Connection,
    retention: Retention,
    now: float,
    *,
    store: Callable[[sqlite3.Connection, list[Statement]], None],
    remove_files: Callable[[list[str]], None],
) -> int:
    """Remove runs that are too old or exceed the size; return how many. `store` writes statements; `remove_files` gets the names of
    log files after that. Raises sqlite3.Error."""

    def remove(uids: list[str]) -> int:
        marks = ", ".join("?" * len(uids))
        names = [name for (name,) in database.execute(f"SELECT name FROM runs WHERE uid IN ({marks})", uids)]
        files = list(database.execute(f"SELECT file FROM logs WHERE run_uid IN ({marks}) AND file != ''", uids))
        unmarked = [put_marks(uid, {}) for uid in read_marks(database, uids)]
        store(database, [*_deletions(uids), *unmarked, put_note(CUT_NOTE, _sentence(names, now))])
        remove_files([file for (file,) in files])
        return len(uids)

    removed = 0
    while uids := expired_runs(database, retention, now):
        removed += remove(uids)
    if stored_bytes(database) > retention.size:
        order = removal_order(stored_runs(database))
        while stored_bytes(database) > retention.size * _TARGET and (uids := list(islice(order, _RUNS_PER_LOOK))):
            removed += remove(uids)
    if removed:
        database.execute("PRAGMA incremental_vacuum")
    return removed


def _deletions(uids: list[str]) -> list[Statement]:
    return [Statement(WRITES[f"cut {what}"], (uid,)) for what in ("pods", "logs", "samples", "run") for uid in uids]


def _sentence(names: list[str], now: float) -> str:
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{objects.timestamp(now)}: {some}"
