"""The archive's file: SQLite in WAL mode. A commit survives `kill -9`; a power loss may lose the latest commits.

One connection writes, on the archive's thread; readers open their own. `user_version` is the format. A file of a newer format, or one
that is not a database, is not touched; the server then runs without an archive and reports it."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from rowlock.archive.records import LogRecord, PodRecord, RunRecord

FORMAT = 2
"""In format 1 every body was compressed."""
# Tables with bodies have a rowid and an index on uids: keeping large rows in the order of random uids (WITHOUT ROWID) costs three
# times as much. Files with such tables, from an earlier rowlock, still work.
TABLES = """
CREATE TABLE runs (
  uid TEXT PRIMARY KEY, id TEXT NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL, namespace_uid TEXT NOT NULL,
  project TEXT NOT NULL, kind TEXT NOT NULL, created REAL NOT NULL, finished REAL, deleted REAL, phase TEXT NOT NULL,
  attempts INTEGER NOT NULL, verdict TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX runs_id ON runs (id);
CREATE INDEX runs_created ON runs (created);
CREATE TABLE pods (
  pod_uid TEXT PRIMARY KEY, run_uid TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL, deleted REAL, body BLOB NOT NULL
);
CREATE INDEX pods_run ON pods (run_uid);
CREATE TABLE logs (
  pod_uid TEXT NOT NULL, container TEXT NOT NULL, number INTEGER NOT NULL, run_uid TEXT NOT NULL, namespace TEXT NOT NULL,
  pod TEXT NOT NULL, began REAL NOT NULL, size INTEGER NOT NULL, stored INTEGER NOT NULL, file TEXT NOT NULL, body BLOB,
  PRIMARY KEY (pod_uid, container, number)
);
CREATE INDEX logs_run ON logs (run_uid);
CREATE TABLE samples (
  run_uid TEXT NOT NULL, pod TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run_uid, pod, at)
) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
"""
_RUN_COLUMNS = (
    "uid, id, name, namespace, namespace_uid, project, kind, created, finished, deleted, phase, attempts, verdict"
)
_LOG_COLUMNS = "pod_uid, container, number, run_uid, namespace, pod, began, size, stored, file"
WRITES: Mapping[str, str] = {
    "run": f"INSERT OR REPLACE INTO runs ({_RUN_COLUMNS}, body) VALUES ({', '.join('?' * 14)})",
    "pod": f"INSERT OR REPLACE INTO pods VALUES ({', '.join('?' * 6)})",
    "log": f"INSERT OR REPLACE INTO logs ({_LOG_COLUMNS}, body) VALUES ({', '.join('?' * 11)})",
    "samples": "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)",
    "note": "INSERT OR REPLACE INTO notes VALUES (?, ?)",
    "cut pods": "DELETE FROM pods WHERE run_uid = ?",
    "cut logs": "DELETE FROM logs WHERE run_uid = ?",
    "cut samples": "DELETE FROM samples WHERE run_uid = ?",
    "cut run": "DELETE FROM runs WHERE uid = ?",
}
"""Every write statement by name. Servers that share an archive exchange these names, so later versions must not change them."""
_run_values = attrgetter(*_RUN_COLUMNS.split(", "))
_CHECKPOINT_PAGES = 4000
"""Pages of the WAL (16 MiB) between checkpoints: a page that many commits write is copied into the file only once."""
_PLAIN = 4 << 10
"""Bytes of JSON, one page of the file, up to which it is not compressed: compression would save a page at most, and would be most of
the cost of a short run."""
_COMPRESSION = 1
_CHECKED_BYTES = 512 << 20
"""The largest file whose pages are all checked at opening, which takes half a second. Records have their own checksums."""


class UnusableArchive(Exception):
    """The archive or a record of it cannot be used; the message says what a person has to do."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A write: SQL and its values. A dict or list becomes JSON, compressed if it is large, on the archive's thread."""

    sql: str
    values: Sequence[Any]

    def encoded_values(self) -> list[Any]:
        return [pack(value) if isinstance(value, (dict, list)) else value for value in self.values]


def pack(value: Any) -> bytes:
    """A value as JSON in zlib format, with its checksum; small values are stored uncompressed."""
    text = msgspec.json.encode(value)
    return zlib.compress(text, 0 if len(text) <= _PLAIN else _COMPRESSION)


def unpack(blob: bytes) -> Any:
    """The inverse of `pack`; also reads the plain JSON of an earlier rowlock. Raises UnusableArchive for a damaged record."""
    try:
        return msgspec.json.decode(blob if blob[:1] in (b"{", b"[") else zlib.decompress(blob))
    except (zlib.error, ValueError, TypeError) as error:
        raise UnusableArchive(
            f"this record is damaged ({error}), others may be whole: put archive.db back from a copy, or move it away and a new one is begun"
        ) from None


def put_run(record: RunRecord, body: dict[str, Any] | None = None) -> Statement:
    """The write of a run; `body` replaces the record's own."""
    return Statement(WRITES["run"], (*_run_values(record), record.body if body is None else body))


def put_pod(record: PodRecord) -> Statement:
    values = (record.pod_uid, record.run_uid, record.name, record.created, record.deleted, record.body)
    return Statement(WRITES["pod"], values)


def put_log(record: LogRecord, body: bytes | None) -> Statement:
    values = tuple(getattr(record, name.strip()) for name in _LOG_COLUMNS.split(","))
    return Statement(WRITES["log"], (*values, body))


def put_samples(run_uid: str, pod: str, at: float, body: dict[str, Any]) -> Statement:
    return Statement(WRITES["samples"], (run_uid, pod, at, body))


def put_note(name: str, text: str) -> Statement:
    return Statement(WRITES["note"], (name, text))


MARK = "mark/"
"""Prefix of the names of notes with what people wrote on a run: the uid of its job follows, the text is JSON."""
MARKED = f"SELECT substr(name, {len(MARK) + 1}) FROM notes WHERE name GLOB '{MARK}*'"
"""The uids of runs with marks; `MARKS` is their JSON, for further conditions: SQLite may check them on any note first."""
MARKS = f"iif(name GLOB '{MARK}*', text, '{{}}')"


def put_marks(run_uid: str, marks: Mapping[str, Any]) -> Statement:
    """The write of what people wrote on a run: `{"tags", "note", "favourite"}`, or {} for nothing."""
    return put_note(f"{MARK}{run_uid}", json.dumps(marks, ensure_ascii=False))


def open_database(path: Path, *, writes: bool) -> sqlite3.Connection:
    """Open the file; `writes` may create it. Raises FileNotFoundError when there is none, UnusableArchive, sqlite3.Error, OSError."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise UnusableArchive(f"{path} is no file: move it away, and a new one is begun")
    if writes:
        path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    elif not path.exists():
        raise FileNotFoundError(path)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise UnusableArchive(
                f"{path} was written by a later rowlock (format {version}, this one knows {FORMAT}): upgrade, or move it away"
            )
        if not writes and version == 0:  # the writer has created the file, but not its tables yet
            raise FileNotFoundError(path)
        if writes:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must be set before the first page is written
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            if version == 0:
                database.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
            elif version < FORMAT:
                database.execute(f"PRAGMA user_version = {FORMAT}")  # records of older formats remain readable
            _check_pages(database, path)
    except sqlite3.DatabaseError as error:
        database.close()
        if "not a database" in str(error) or "malformed" in str(error):
            raise UnusableArchive(f"{path} is damaged ({error}): move it away, and a new one is begun") from error
        raise
    except BaseException:
        database.close()
        raise
    return database


def _check_pages(database: sqlite3.Connection, path: Path) -> None:
    """Raise UnusableArchive when a page is damaged: rows may be hidden, and writes to it may be lost."""
    if path.stat().st_size > _CHECKED_BYTES:
        return
    (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise UnusableArchive(f"{path} is damaged ({problem}): move it away, and a new one is begun".replace("\n", " "))


def write_all(database: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Execute statements in one transaction. Raises sqlite3.Error; then nothing is written."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for sql, alike in itertools.groupby(statements, attrgetter("sql")):
            database.executemany(sql, (statement.encoded_values() for statement in alike))
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


# ---------------------------------------------------------------- reads


def read_runs(database: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()) -> Iterator[RunRecord]:
    """The runs that match a WHERE clause, newest first, with their bodies."""
    sql = f"SELECT {_RUN_COLUMNS}, body FROM runs {where} ORDER BY created DESC, uid"
    for row in database.execute(sql, values):
        record = RunRecord(*row[:-1])
        record.body = unpack(row[-1])
        yield record


def read_headers(
    database: sqlite3.Connection, where: str = "", values: Sequence[Any] = (), *, limit: int = -1, offset: int = 0
) -> list[RunRecord]:
    """As `read_runs` without bodies: at most `limit` runs (-1 = all) after the first `offset`."""
    sql = f"SELECT {_RUN_COLUMNS} FROM runs {where} ORDER BY created DESC, uid LIMIT ? OFFSET ?"
    return [RunRecord(*row) for row in database.execute(sql, (*values, limit, offset))]


def read_deleted(database: sqlite3.Connection, uids: Sequence[str]) -> list[str]:
    """Those of these runs whose deletion is recorded. Raises sqlite3.Error."""
    marks = ", ".join("?" * len(uids))
    sql = f"SELECT uid FROM runs WHERE uid IN ({marks}) AND deleted IS NOT NULL"
    return [uid for (uid,) in database.execute(sql, uids)]


def read_pods(database: sqlite3.Connection, run_uid: str) -> list[PodRecord]:
    sql = "SELECT * FROM pods WHERE run_uid = ? ORDER BY created, name"
    return [PodRecord(a, b, c, d, e, unpack(body)) for a, b, c, d, e, body in database.execute(sql, (run_uid,))]


def read_logs(database: sqlite3.Connection, run_uid: str) -> list[LogRecord]:
    """The logs of a run without their bodies, the oldest first."""
    sql = f"SELECT {_LOG_COLUMNS} FROM logs WHERE run_uid = ? ORDER BY began, pod_uid, container, number"
    return [LogRecord(*row) for row in database.execute(sql, (run_uid,))]


def read_log_body(database: sqlite3.Connection, log: LogRecord) -> bytes | None:
    """The compressed log; None when the row is gone, or the log is in a file."""
    sql = "SELECT body FROM logs WHERE pod_uid = ? AND container = ? AND number = ?"
    row = database.execute(sql, (log.pod_uid, log.container, log.number)).fetchone()
    return None if row is None else row[0]


def read_samples(
    database: sqlite3.Connection, run_uid: str, *, pod: str = "", without: frozenset[tuple[str, float]] = frozenset()
) -> list[tuple[str, float, dict[str, Any]]]:
    """Pod, time and content of each chunk, ordered by time: of one pod if `pod` is given, without the (pod, time) pairs of `without`."""
    sql = "SELECT pod, at, body FROM samples WHERE run_uid = ? AND (pod = ? OR ? = '') ORDER BY at"
    rows = database.execute(sql, (run_uid, pod, pod))
    return [(name, at, unpack(body)) for name, at, body in rows if (name, at) not in without]


def read_notes(database: sqlite3.Connection) -> dict[str, str]:
    """The archive's notes about itself."""
    return dict(database.execute(f"SELECT name, text FROM notes WHERE name NOT GLOB '{MARK}*'"))


def read_marks(database: sqlite3.Connection, run_uids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Uid of a run → what people wrote on it; only runs with marks."""
    names = json.dumps([f"{MARK}{uid}" for uid in run_uids])
    sql = "SELECT name, text FROM notes WHERE name IN (SELECT value FROM json_each(?))"
    return {name.removeprefix(MARK): json.loads(text) for name, text in database.execute(sql, (names,))}
