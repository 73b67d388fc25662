"""What a database holds when a server starts: read once, whole, by a connection that cannot write.

SQLite copies what it can read of a journal into the database and removes the journal when its last connection closes. So a database
that will be refused is never opened for writing: what SQLite cannot read of it is still there for whoever can.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rowlock.errors import Unavailable
from rowlock.storage import log_format
from rowlock.storage.log_format import COLUMNS, Row, TranslateErrors, read_rows


@dataclass(frozen=True, slots=True)
class SupersededRow:
    """Row `revision` stopped mattering at revision `since`."""

    since: int
    revision: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a journal holds: the live rows, sorted by key; and what compaction still has to remove."""

    revision: int
    compacted: int
    live: list[Row]
    garbage: list[SupersededRow]


def examine_database(path: Path) -> Recovery | None:
    """What a database of this format holds; None for a new one, and one of an older format. Raises Unavailable for one that is
    damaged, or of a later format; nothing was changed then."""
    journal = path.with_name(f"{path.name}-wal")
    if not path.exists() or not path.stat().st_size:
        if journal.exists() and journal.stat().st_size:
            raise Unavailable(
                f"{path} is {'empty' if path.exists() else 'missing'}, but {journal}, which holds its latest writes, is there: put"
                f" the database back, restore a backup into a new directory, or move {path.name}* away to start with an empty cluster"
            )
        return None
    with TranslateErrors(path), closing(sqlite3.connect(uri(path, "ro"), uri=True, isolation_level=None)) as log:
        if log_format.read_version(log, path) < log_format.FORMAT:
            return None
        return read_recovery(log, path)


def uri(path: Path, mode: str) -> str:
    """For `sqlite3.connect(…, uri=True)`; `mode`: ro, rw."""
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode={mode}"


def read_recovery(log: sqlite3.Connection, path: Path) -> Recovery:
    """Read the whole log once. Raises Unavailable for damage."""
    newest: dict[tuple[str, str, str], Row] = {}
    garbage: list[SupersededRow] = []
    last_revision = 0
    with TranslateErrors(path):
        compacted = int(log.execute("SELECT compacted FROM mark").fetchone()[0])
        for row in read_rows(log, f"SELECT {COLUMNS} FROM log ORDER BY revision", path):
            key, last_revision = (row.kind, row.namespace, row.name), row.revision
            superseded = newest.pop(key, None)
            if superseded is not None:
                garbage.append(SupersededRow(row.revision, superseded.revision))
            if row.verb == "Deleted":
                garbage.append(SupersededRow(row.revision, row.revision))
            else:
                newest[key] = row
        (problem,) = log.execute(
            "PRAGMA quick_check(1)"
        ).fetchone()  # a page that leaves rows out: no checksum of theirs is wrong
    if problem != "ok":
        raise log_format.damage_error(path, str(problem).replace("\n", " "))
    live = [newest[key] for key in sorted(newest)]
    return Recovery(max(last_revision, compacted), compacted, live, garbage)


def check_step_back(path: Path, recovery: Recovery, noted: int, *, accepts_loss: bool) -> Recovery:
    """What to go on with when revision `noted` was durable once. Raises Unavailable when the database ends before it; where the loss is
    accepted, revisions go on behind the noted one, so that no client takes a new object for one that it knows."""
    if noted <= recovery.revision:
        return recovery
    if not accepts_loss:
        raise Unavailable(
            f"{path} ends at revision {recovery.revision}, but changes up to revision {noted} were written to it: the last"
            f" {noted - recovery.revision} are missing, because an older file was put back, or {path.name}-wal was damaged or removed. rowlock"
            " changed nothing: put the newer files back, or restore a backup into a new directory (`rowlock restore FILE --data-dir DIR`);"
            " `rowlock up --accept-loss` goes on without these changes and says which directories have no object any more"
        )
    return replace(recovery, revision=noted, compacted=noted)
