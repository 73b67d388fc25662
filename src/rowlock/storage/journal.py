"""The log on disk: one append-only SQLite table, where an insert is a revision (kine's idea).

WAL with synchronous=FULL: when `append` returns, the rows survive a power loss. Compaction travels in the same
transactions: rows that were superseded long ago go out while new ones come in, a few at a time, for no extra fsync.
`append` belongs to one thread; `read` opens a connection of its own and may be called from any other.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rowlock.errors import Unavailable
from rowlock.storage import log_format
from rowlock.storage.log_format import COLUMNS, Row, TranslateErrors, read_rows, row_checksum, row_fields
from rowlock.storage.recovery import (
    Recovery,
    RevisionNote,
    check_step_back,
    examine_database,
    forget_note,
    read_recovery,
)

_ROW = "(?, ?, ?, ?, ?, ?, ?, ?)"
_LOCK_PATIENCE = 1.0
"""Seconds for which acquiring a lock that another process holds is retried."""
_ROWS_PER_INSERT = 64
"""Rows of one INSERT. Each statement reacquires the GIL, which a busy event loop releases late: so a batch uses as few
statements as possible."""
_DELETE_ROWS = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"


SMALL_FILE = 64 << 20
"""Bytes up to which a database keeps its free pages."""


class Journal:
    """An open log. Raises Unavailable, with one sentence, for everything that a user has to act on. `accepts_loss`: also open a log
    that lacks changes which were once durable."""

    def __init__(self, path: Path, *, accepts_loss: bool = False) -> None:
        self.path = path
        self.notice = ""
        """What was lost or recreated at this start, in a sentence; "" = nothing."""
        self._lock = acquire_lock(path.with_name("lock"))
        try:
            found = self._examine()
            self._note = RevisionNote(path)
            try:
                self._recovery = self._compare(found, accepts_loss)
                self._log = self._connect()
            except BaseException:
                self._note.close()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _examine(self) -> Recovery | None:
        """Read the database before anything is written to it; None for a new one or one of an older format."""
        if os.path.lexists(self.path):
            self._make_private()
        found = examine_database(self.path)
        if not self.path.exists() or not self.path.stat().st_size:
            forget_note(self.path)
        return found

    def _compare(self, found: Recovery | None, accepts_loss: bool) -> Recovery | None:
        """Check what was found against the noted last revision. Raises Unavailable when the database is behind it."""
        path, note = self.path, self._note
        if found is None:
            return None
        sound = check_step_back(path, found, note.revision, accepts_loss=accepts_loss)
        if note.is_damaged:
            self.notice = f"{note.path} could not be read and was made anew: whether {path.name} lacks its latest changes cannot be told"
        elif sound is not found:
            self.notice = (
                f"--accept-loss: the {note.revision - found.revision} changes after revision {found.revision} of {path.name}"
                f" are lost, up to revision {note.revision}"
            )
        return sound

    def _connect(self) -> sqlite3.Connection:
        with TranslateErrors(self.path):
            self._make_private()
            log = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(log)
                if self._recovery is None:
                    self._recovery = read_recovery(log, self.path)
                _give_back_pages(log, self.path)
                log.execute("UPDATE mark SET compacted = ? WHERE compacted < ?", [self._recovery.compacted] * 2)
                self._note.write(self._recovery.revision)
            except BaseException:
                log.close()
                raise
        return log

    def _prepare(self, log: sqlite3.Connection) -> None:
        version = log_format.read_version(log, self.path)
        log.execute("PRAGMA journal_mode = WAL")
        log.execute("PRAGMA synchronous = FULL")
        log.execute("PRAGMA secure_delete = ON")  # what is deleted may be a Secret: its pages are overwritten
        # SQLite's default checkpoint interval (1,000 pages) stays: a WAL file that still grows costs two writes a sync.
        if version == 0:
            log.executescript(log_format.TABLES)
            log.execute(f"PRAGMA user_version = {log_format.FORMAT}")
        elif version < log_format.FORMAT:
            log_format.upgrade(log, self.path, version)

    def _make_private(self) -> None:
        """Set mode 0600 on the database, which holds Secrets, and on existing `-wal` and `-shm` files. Raises Unavailable."""
        for path in (self.path, *(self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm"))):
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if path is self.path else 0)
            try:
                with open(os.open(path, flags, 0o600), "rb") as file:
                    os.fchmod(file.fileno(), 0o600)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unavailable(
                    f"{path} cannot be used ({error.strerror}): look at what it is, at its rights and at those of its directory"
                ) from error

    def recover(self) -> Recovery:
        """What the log held when it was opened. May be called once."""
        recovery, self._recovery = self._recovery, None
        assert recovery is not None
        return recovery

    def append(self, rows: Sequence[Row], drop: Sequence[int] = (), compacted: int = 0) -> None:
        """Make `rows` durable and delete the rows of the revisions `drop`, in one transaction."""
        values = [(*(fields := row_fields(row)), row_checksum(fields, row.value), row.value) for row in rows]
        inserts = [
            _insert_statement(values[at : at + _ROWS_PER_INSERT]) for at in range(0, len(values), _ROWS_PER_INSERT)
        ]
        with TranslateErrors(self.path):
            if len(inserts) == 1 and not drop:  # a single statement is its own transaction
                self._log.execute(*inserts[0])
                self._note.write(rows[-1].revision)
                return
            try:
                self._log.execute("BEGIN IMMEDIATE")
                for insert in inserts:
                    self._log.execute(*insert)
                if drop:
                    self._log.execute(_DELETE_ROWS, (f"[{','.join(map(str, drop))}]",))
                    self._log.execute("UPDATE mark SET compacted = max(compacted, ?)", (compacted,))
                self._log.execute("COMMIT")
                if rows:
                    self._note.write(rows[-1].revision)
            except sqlite3.Error:
                if self._log.in_transaction:
                    self._log.execute("ROLLBACK")
                raise

    def read(self, since: int, limit: int) -> list[tuple[Row, bytes | None]]:
        """Up to `limit` rows after a revision, each with the value it superseded. Empty when `since` has been compacted."""
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

    def has_deleted(self, kind: str, name: str, since: int) -> bool:
        """Whether an object without a namespace was removed after a revision, as far as that has not been compacted."""
        with TranslateErrors(self.path):
            log = sqlite3.connect(self.path, isolation_level=None)
            try:
                query = "SELECT 1 FROM log WHERE revision > ? AND verb = ? AND kind = ? AND name = ? AND namespace = '' LIMIT 1"
                return log.execute(query, (since, log_format.VERBS.index("Deleted"), kind, name)).fetchone() is not None
            finally:
                log.close()

    def close(self) -> None:
        """Release the database and its lock; whatever was committed is on disk."""
        self._log.close()
        self._note.close()
        self._lock.close()


def _insert_statement(values: Sequence[tuple[object, ...]]) -> tuple[str, list[object]]:
    """One statement for several rows, and its parameters."""
    return f"INSERT INTO log VALUES {', '.join([_ROW] * len(values))}", [cell for row in values for cell in row]


def _read_value(log: sqlite3.Connection, revision: int) -> bytes | None:
    row = log.execute("SELECT value FROM log WHERE revision = ?", (revision,)).fetchone() if revision else None
    return bytes(row[0]) if row else None


def _flock(file: IO[str]) -> None:
    """Lock, retrying for a second: a killed process keeps its lock until its last disk write has ended. Raises OSError."""
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _give_back_pages(log: sqlite3.Connection, path: Path) -> None:
    """Write a file anew of which three quarters are free pages: it had the size of its peak for ever. It costs the time and the room of
    what is in it."""
    (free,), (pages,), (size,) = (
        log.execute(f"PRAGMA {what}").fetchone() for what in ("freelist_count", "page_count", "page_size")
    )
    if pages * size > SMALL_FILE and free * 4 > pages * 3:
        try:
            log.execute("VACUUM")
            log.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:  # there is no room for a second one: it serves as it is
            logging.getLogger(__name__).warning("%s keeps %d MiB of free pages: %s", path, free * size >> 20, error)


def acquire_lock(path: Path) -> IO[str]:
    """Take an exclusive lock; the kernel releases it however the process ends. Raises Unavailable when another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+")
        os.fchmod(file.fileno(), 0o600)  # a process that can open it can lock it
    except OSError as error:
        todo = "choose another directory" if not os.path.lexists(path) else "remove that file, it is made anew"
        raise Unavailable(
            f"the data directory {path.parent} cannot be used ({path.name}: {error.strerror}): {todo}"
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
