"""The log on disk: one append-only SQLite table, where an insert is a revision (kine's idea).

WAL with synchronous=FULL: when `append` returns, the rows survive a power loss. Compaction travels in the same
transactions: rows that were superseded long ago go out while new ones come in, a few at a time, for no extra fsync.
`append` belongs to one thread; `read` opens a connection of its own and may be called from any other.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rowlock.errors import Unavailable
from rowlock.storage import log_format
from rowlock.storage.log_format import COLUMNS, Row, TranslateErrors, read_rows, row_checksum, row_fields

_ROW = "(?, ?, ?, ?, ?, ?, ?, ?)"
_LOCK_PATIENCE = 1.0
"""Seconds for which a lock that another server holds is asked for again."""
_ROWS_PER_INSERT = 64
"""Rows of one INSERT. Each statement takes the interpreter's lock anew, and a busy event loop lets go of it late: a batch
is as few statements as can be."""
_DELETE_ROWS = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"


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


class Journal:
    """An open log. Raises Unavailable with one sentence for everything that a user has to do something about."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = acquire_lock(path.with_name("lock"))
        try:
            self._log = self._connect()
        except BaseException:
            self._lock.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        with TranslateErrors(self.path):
            self._create_private()
            log = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(log)
            except BaseException:
                log.close()
                raise
        return log

    def _prepare(self, log: sqlite3.Connection) -> None:
        version = log_format.read_version(log, self.path)
        log.execute("PRAGMA journal_mode = WAL")
        log.execute("PRAGMA synchronous = FULL")
        log.execute("PRAGMA secure_delete = ON")  # what is deleted may be a Secret: its pages are overwritten
        # Checkpoints come as SQLite has it, after 1,000 pages: a WAL file that still grows costs two writes a sync.
        if version == 0:
            log.executescript(log_format.TABLES)
            log.execute(f"PRAGMA user_version = {log_format.FORMAT}")
        elif version < log_format.FORMAT:
            log_format.upgrade(log, self.path, version)

    def _create_private(self) -> None:
        """The file holds Secrets: nobody else may read it, nor the `-wal` and `-shm` beside it, which SQLite gives its rights."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.chmod(f"{self.path}{suffix}", 0o600)
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be used ({error.strerror}): look at the rights of the file and of its directory"
            ) from error

    def recover(self) -> Recovery:
        """Read the whole log once. Rows of a damaged file raise; the file is left as it is."""
        newest: dict[tuple[str, str, str], Row] = {}
        garbage: list[SupersededRow] = []
        last_revision = 0
        with TranslateErrors(self.path):
            compacted = int(self._log.execute("SELECT compacted FROM mark").fetchone()[0])
            for row in read_rows(self._log, f"SELECT {COLUMNS} FROM log ORDER BY revision", self.path):
                key, last_revision = (row.kind, row.namespace, row.name), row.revision
                superseded = newest.pop(key, None)
                if superseded is not None:
                    garbage.append(SupersededRow(row.revision, superseded.revision))
                if row.verb == "Deleted":
                    garbage.append(SupersededRow(row.revision, row.revision))
                else:
                    newest[key] = row
        live = [newest[key] for key in sorted(newest)]
        return Recovery(max(last_revision, compacted), compacted, live, garbage)

    def append(self, rows: Sequence[Row], drop: Sequence[int] = (), compacted: int = 0) -> None:
        """Make `rows` durable, and forget the rows `drop`; all or nothing."""
        values = [(*(fields := row_fields(row)), row_checksum(fields, row.value), row.value) for row in rows]
        inserts = [
            _insert_statement(values[at : at + _ROWS_PER_INSERT]) for at in range(0, len(values), _ROWS_PER_INSERT)
        ]
        with TranslateErrors(self.path):
            if len(inserts) == 1 and not drop:  # a statement alone is a transaction
                self._log.execute(*inserts[0])
                return
            try:
                self._log.execute("BEGIN IMMEDIATE")
                for insert in inserts:
                    self._log.execute(*insert)
                if drop:
                    self._log.execute(_DELETE_ROWS, (f"[{','.join(map(str, drop))}]",))
                    self._log.execute("UPDATE mark SET compacted = max(compacted, ?)", (compacted,))
                self._log.execute("COMMIT")
            except sqlite3.Error:
                if self._log.in_transaction:
                    self._log.execute("ROLLBACK")
                raise

    def read(self, since: int, limit: int) -> list[tuple[Row, bytes | None]]:
        """The next rows after a revision, each with the value it superseded. None of it if compaction was there."""
        with TranslateErrors(self.path):
            log = sqlite3.connect(self.path, isolation_level=None)
            try:
                log.execute("BEGIN")
                compacted = int(log.execute("SELECT compacted FROM mark").fetchone()[0])
                if since < compacted:
                    return []
                query = f"SELECT {COLUMNS} FROM log WHERE revision > {since} ORDER BY revision LIMIT {limit}"
                rows = list(read_rows(log, query, self.path))
                return [(row, _read_value(log, row.previous)) for row in rows]
            finally:
                log.close()

    def close(self) -> None:
        """Release the database and its lock; whatever was committed is on disk."""
        self._log.close()
        self._lock.close()


def _insert_statement(values: Sequence[tuple[object, ...]]) -> tuple[str, list[object]]:
    """One statement for several rows, and its parameters."""
    return f"INSERT INTO log VALUES {', '.join([_ROW] * len(values))}", [cell for row in values for cell in row]


def _read_value(log: sqlite3.Connection, revision: int) -> bytes | None:
    row = log.execute("SELECT value FROM log WHERE revision = ?", (revision,)).fetchone() if revision else None
    return bytes(row[0]) if row else None


def _flock(file: IO[str]) -> None:
    """A process that was killed holds its lock until its last write to the disk has ended. Raises OSError."""
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def acquire_lock(path: Path) -> IO[str]:
    """An exclusive lock for the life of the process; the kernel releases it however the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+")
        os.fchmod(file.fileno(), 0o600)  # who can open it can hold it
    except OSError as error:
        raise Unavailable(
            f"the data directory {path.parent} cannot be used ({error.strerror}): choose another one"
        ) from error
    try:
        _flock(file)
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise Unavailable(
            f"another rowlock server (pid {owner}) uses the data directory {path.parent}: "
            "use that one, stop it with `rowlock down`, or choose another directory with --data-dir"
        ) from error
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
