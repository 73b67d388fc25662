"""What a database holds when a server starts: read once, completely, by a read-only connection.

When its last connection closes, SQLite copies what it can read of a WAL file into the database and removes the WAL. So a database
that will be refused is never opened for writing: the frames that SQLite cannot read remain for other tools.
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
"""Bytes: a revision of 18 digits, a blank, its CRC-32 in hex, a newline. Less than a disk sector, which is written atomically."""


@dataclass(frozen=True, slots=True)
class SupersededRow:
    """Row `revision` was superseded at revision `since`."""

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
    """What a database of this format holds; None for a new one or one of an older format. Raises Unavailable for a damaged database
    or a later format, without changing anything."""
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
    """A file URI for `sqlite3.connect(…, uri=True)`; `mode`: ro, rw."""
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
        ).fetchone()  # finds damaged pages that hide rows, which checksums of rows cannot detect
    if problem != "ok":
        raise log_format.damage_error(path, str(problem).replace("\n", " "))
    live = [newest[key] for key in sorted(newest)]
    return Recovery(max(last_revision, compacted), compacted, live, garbage)


def check_step_back(path: Path, recovery: Recovery, noted: int, *, accepts_loss: bool) -> Recovery:
    """The recovery to continue from, given that revision `noted` was once durable. Raises Unavailable when the database ends before it;
    with `accepts_loss`, new revisions follow `noted` instead, so that no revision is used for two different objects."""
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
    """The last durable revision, noted in a file beside the database, so that the next start detects a database that is behind it.

    SQLite ends a WAL at its first damaged frame without an error, and an older copy of the database looks as valid as the
    latest. The note is one line, overwritten in place after each commit and never synced: after `kill -9` it is exact, after a power
    loss it may be some seconds old. So it is never ahead of a complete database, and a database that is behind it has lost changes.

    `revision` is the noted revision at opening, 0 when the file was empty or unreadable; `is_damaged`: it was unreadable
    but not empty. Raises Unavailable when the file cannot be used."""

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
        """Note `revision` after its commit. Errors are ignored: the commit is durable, and an older note only detects less."""
        digits = f"{revision:018}"
        with suppress(OSError):
            os.pwrite(self._fd, f"{digits} {zlib.crc32(digits.encode()):08x}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._fd)


def forget_note(database: Path) -> None:
    """Remove the note of an earlier cluster before a new one begins. If that fails, opening the note reports it."""
    with suppress(OSError):
        database.with_name(NOTE_NAME).unlink(missing_ok=True)


def _parse_note(content: bytes) -> int:
    digits, _, checksum = content.decode("ascii", "replace").rstrip("\n").partition(" ")
    if not is_digits(digits) or checksum != f"{zlib.crc32(digits.encode()):08x}":
        return 0
    return int(digits)
