"""What a database holds when a server starts: read once, whole, by a connection that cannot write.

SQLite copies what it can read of a journal into the database and removes the journal when its last connection closes. So a database
that will be refused is never opened for writing: what SQLite cannot read of it stays there for other tools.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rowlock.errors import Unavailable
from rowlock.objects import is_digits
from rowlock.storage import log_format
from rowlock.storage.log_format import COLUMNS, Row, TranslateErrors, read_rows

NOTE_NAME = "cluster.revision"
_NOTE_LENGTH = 28
"""Bytes: a revision of 18 digits, a blank, CRC-32 of it in hex, a newline. Less than a disk writes at once."""


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


class RevisionNote:
    """The last revision that was made durable, noted beside the database: so a step back is seen at the next start.

    SQLite ends its journal at the first frame that is damaged, without a word, and an older copy of the file looks as whole as the
    latest. The note is one line, overwritten in place after each commit and never synced: after `kill -9` it is exact, after a power
    loss it may be some seconds old. So it is never ahead of the database, and a database that is behind it has lost something.

    `revision` is what it said when it was opened: 0 where it said nothing that can be read; `is_damaged`: it held
    something all the same. Raises Unavailable where it cannot be used."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(NOTE_NAME)
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            content = os.pread(self._fd, _NOTE_LENGTH, 0)
        except OSError as error:
            raise Unavailable(
                f"{self.path}, the note of the last revision, cannot be used ({error.strerror}): remove it, it is made anew"
            ) from error
        self.revision = _parse_note(content)
        self.is_damaged = bool(content) and not self.revision

    def write(self, revision: int) -> None:
        """After a commit. An error is not one of the commit, which is durable: an older note only sees less."""
        digits = f"{revision:018}"
        with suppress(OSError):
            os.pwrite(self._fd, f"{digits} {zlib.crc32(digits.encode()):08x}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._fd)


def forget_note(database: Path) -> None:
    """A new cluster begins: what the note says is of another one. What cannot be removed is refused when it is opened."""
    with suppress(OSError):
        database.with_name(NOTE_NAME).unlink(missing_ok=True)


def _parse_note(content: bytes) -> int:
    digits, _, checksum = content.decode("ascii", "replace").rstrip("\n").partition(" ")
    if not is_digits(digits) or checksum != f"{zlib.crc32(digits.encode()):08x}":
        return 0
    return int(digits)
