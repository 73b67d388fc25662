"""The log on disk: one append-only SQLite table, where an insert is a revision (kine's idea).

WAL with synchronous=FULL: when `append` returns, the rows survive a power loss. Compaction travels in the same
transactions: rows that were superseded long ago go out while new ones come in, a few at a time, for no extra fsync.
`append` belongs to one thread; `read` opens a connection of its own and may be called from any other.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import msgspec

from rowlock.errors import Unavailable

FORMAT = 1
"""`user_version` of the file; a file of a later format is refused, not guessed at."""

_TABLES = """
CREATE TABLE IF NOT EXISTS log (
  revision INTEGER PRIMARY KEY, previous INTEGER NOT NULL, verb INTEGER NOT NULL,
  kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS mark (one INTEGER PRIMARY KEY CHECK (one = 1), compacted INTEGER NOT NULL);
INSERT OR IGNORE INTO mark VALUES (1, 0);
"""
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS_PER_INSERT = 64
"""Rows of one INSERT. Each statement takes the interpreter's lock anew, and a busy event loop lets go of it late: a batch
is as few statements as can be."""
_DELETE_ROWS = "DELETE FROM log WHERE revision IN (SELECT value FROM json_each(?))"
_COLUMNS = "revision, previous, verb, kind, namespace, name, checksum, value"

Verb = Literal["Added", "Modified", "Deleted"]
_VERBS: tuple[Verb, ...] = ("Added", "Modified", "Deleted")


class Row(msgspec.Struct, frozen=True):
    """One revision. `previous` is the revision of the row it supersedes (0 = none); `value` the object's JSON."""

    revision: int
    previous: int
    verb: Verb
    kind: str
    namespace: str
    name: str
    value: bytes


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
        self._lock = _acquire_lock(path.with_name("lock"))
        try:
            self._log = self._connect()
        except BaseException:
            self._lock.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        with _TranslateErrors(self.path):
            self._create_private()
            log = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            version = int(log.execute("PRAGMA user_version").fetchone()[0])
            if version > FORMAT:
                log.close()
                raise Unavailable(
                    f"{self.path} was written by a newer rowlock (format {version}, this one knows {FORMAT}): "
                    "start that version, or choose another data directory"
                )
            log.execute("PRAGMA journal_mode = WAL")
            log.execute("PRAGMA synchronous = FULL")
            # Checkpoints come as SQLite has it, after 1,000 pages: a WAL file that still grows costs two writes a sync.
            if version < FORMAT:
                log.executescript(_TABLES)
                log.execute(f"PRAGMA user_version = {FORMAT}")
        return log

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
        with _TranslateErrors(self.path):
            compacted = int(self._log.execute("SELECT compacted FROM mark").fetchone()[0])
            for row in self._read_rows(self._log, f"SELECT {_COLUMNS} FROM log ORDER BY revision"):
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
        values = [
            (r.revision, r.previous, _VERBS.index(r.verb), r.kind, r.namespace, r.name, zlib.crc32(r.value), r.value)
            for r in rows
        ]
        inserts = [
            _insert_statement(values[at : at + _ROWS_PER_INSERT]) for at in range(0, len(values), _ROWS_PER_INSERT)
        ]
        with _TranslateErrors(self.path):
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
        with _TranslateErrors(self.path):
            log = sqlite3.connect(self.path, isolation_level=None)
            try:
                log.execute("BEGIN")
                compacted = int(log.execute("SELECT compacted FROM mark").fetchone()[0])
                if since < compacted:
                    return []
                query = f"SELECT {_COLUMNS} FROM log WHERE revision > {since} ORDER BY revision LIMIT {limit}"
                rows = list(self._read_rows(log, query))
                return [(row, _read_value(log, row.previous)) for row in rows]
            finally:
                log.close()

    def close(self) -> None:
        self._log.close()
        self._lock.close()

    def _read_rows(self, log: sqlite3.Connection, query: str) -> Iterator[Row]:
        for revision, previous, verb, kind, namespace, name, checksum, value in log.execute(query):
            if zlib.crc32(value) != checksum:
                raise _damage_error(
                    self.path, f"the checksum of revision {revision}, {kind} {namespace}/{name}, is wrong"
                )
            yield Row(revision, previous, _VERBS[verb], kind, namespace, name, value)


def _insert_statement(values: Sequence[tuple[object, ...]]) -> tuple[str, list[object]]:
    """One statement for several rows, and its parameters."""
    return f"INSERT INTO log VALUES {', '.join([_ROW] * len(values))}", [cell for row in values for cell in row]


def _read_value(log: sqlite3.Connection, revision: int) -> bytes | None:
    row = log.execute("SELECT value FROM log WHERE revision = ?", (revision,)).fetchone() if revision else None
    return bytes(row[0]) if row else None


def _damage_error(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"{path} is damaged ({why}); rowlock changed nothing in it: restore a backup, "
        "or move it away to start with an empty cluster"
    )


class _TranslateErrors:
    """SQLite's errors as one clear sentence each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, sqlite3.Error):
            return
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _damage_error(self._path, str(error)) from error
        if code == sqlite3.SQLITE_FULL:
            raise Unavailable(
                f"the disk that holds {self._path} is full: this write was refused, nothing was lost, reading goes on; "
                "free some space and writes work again",
                retry_after=1,
            ) from error
        raise Unavailable(
            f"{self._path} cannot be used ({error}): this was refused, nothing was lost; "
            "look at the disk and at the rights of the file",
            retry_after=1,
        ) from error


def _acquire_lock(path: Path) -> IO[str]:
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
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
