"""How long the archive keeps what, by age and size: the oldest runs that have ended go first, whole.

What was cut is said: a run of which only the logs went says so, and the archive notes when it cut last and what."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from rowlock import objects
from rowlock.archive.database import WRITES, Statement, put_note

DEFAULT_AGE = 90 * 86400.0
DEFAULT_SIZE = 4 << 30
CUT_NOTE = "cut"
_RUNS_PER_STEP = 100
_TARGET = 0.9
"""A cut leaves so much of the allowed size: the next one shall not come at once."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: runs for so many seconds after their end, and all of them together so many bytes."""

    age: float = DEFAULT_AGE
    size: int = DEFAULT_SIZE


def expired_runs(database: sqlite3.Connection, retention: Retention, now: float) -> list[str]:
    """The uids of runs that ended, or were deleted, too long ago."""
    sql = "SELECT uid FROM runs WHERE max(coalesce(deleted, 0), coalesce(finished, 0)) BETWEEN 1 AND ? LIMIT ?"
    return [uid for (uid,) in database.execute(sql, (now - retention.age, _RUNS_PER_STEP))]


def stored_bytes(database: sqlite3.Connection) -> int:
    """On disk: the database's pages that are in use, and the files of logs."""
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (free,) = database.execute("PRAGMA freelist_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    (files,) = database.execute("SELECT coalesce(sum(stored), 0) FROM logs WHERE file != ''").fetchone()
    return int((pages - free) * size + files)


def oldest_runs(database: sqlite3.Connection, count: int) -> list[str]:
    """Ended ones, the one that ended first in front; what runs is kept whatever it takes."""
    sql = "SELECT uid FROM runs WHERE finished IS NOT NULL OR deleted IS NOT NULL ORDER BY coalesce(finished, deleted) LIMIT ?"
    return [uid for (uid,) in database.execute(sql, (count,))]


def cut(
    database: sqlite3.Connection,
    retention: Retention,
    now: float,
    *,
    store: Callable[[sqlite3.Connection, list[Statement]], None],
    remove_files: Callable[[list[str]], None],
) -> int:
    """Remove what is too old or too much; how many runs went. `store` writes statements, `remove_files` gets the names of logs
    after that: a file without a row is found by the next start. Raises sqlite3.Error."""

    def remove(uids: list[str]) -> int:
        marks = ", ".join("?" * len(uids))
        names = [name for (name,) in database.execute(f"SELECT name FROM runs WHERE uid IN ({marks})", uids)]
        files = list(database.execute(f"SELECT file FROM logs WHERE run_uid IN ({marks}) AND file != ''", uids))
        store(database, [*_deletions(uids), put_note(CUT_NOTE, _sentence(names, now))])
        remove_files([file for (file,) in files])
        return len(uids)

    removed = 0
    while uids := expired_runs(database, retention, now):
        removed += remove(uids)
    if stored_bytes(database) > retention.size:
        while stored_bytes(database) > retention.size * _TARGET and (uids := oldest_runs(database, 10)):
            removed += remove(uids)
    if removed:
        database.execute("PRAGMA incremental_vacuum")
    return removed


def _deletions(uids: list[str]) -> list[Statement]:
    return [Statement(WRITES[f"cut {what}"], (uid,)) for what in ("pods", "logs", "samples", "run") for uid in uids]


def _sentence(names: list[str], now: float) -> str:
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{objects.timestamp(now)}: {some}"
