"""The format of `cluster.db`: the rows of the log, their checksums, the format's number, and upgrades from older formats.

Pure but for the SQLite connection that callers pass in.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from rowlock.errors import Unavailable

FORMAT = 2
"""`user_version` of the file; a file of a later format is refused. In format 1 checksums covered the values alone."""

TABLES = """
CREATE TABLE IF NOT EXISTS log (
  revision INTEGER PRIMARY KEY, previous INTEGER NOT NULL, verb INTEGER NOT NULL,
  kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS mark (one INTEGER PRIMARY KEY CHECK (one = 1), compacted INTEGER NOT NULL);
INSERT OR IGNORE INTO mark VALUES (1, 0);
"""
COLUMNS = "revision, previous, verb, kind, namespace, name, checksum, value"

Verb = Literal["Added", "Modified", "Deleted"]
VERBS: tuple[Verb, ...] = ("Added", "Modified", "Deleted")
_MOST_NAMED = 5
"""Damaged objects that an error message names; the rest are counted."""


class Row(msgspec.Struct, frozen=True):
    """One revision. `previous` is the revision of the row it supersedes (0 = none); `value` the object's JSON."""

    revision: int
    previous: int
    verb: Verb
    kind: str
    namespace: str
    name: str
    value: bytes


RowFields = tuple[int, int, int, str, str, str]
"""A row but for its checksum and value: revision, previous, verb (an index of `VERBS`), kind, namespace, name."""


def row_fields(row: Row) -> RowFields:
    """What the checksum of a row covers beside its value; the verb as its index in `VERBS`."""
    return row.revision, row.previous, VERBS.index(row.verb), row.kind, row.namespace, row.name


def row_checksum(fields: RowFields, value: bytes) -> int:
    """CRC-32 of the whole row: a flipped bit in a name or verb damages an object as much as one in its value."""
    return zlib.crc32(value, zlib.crc32("\0".join(map(str, fields)).encode()))


def _value_checksum(_: RowFields, value: bytes) -> int:
    """The checksum of format 1: of the value alone."""
    return zlib.crc32(value)


def read_version(log: sqlite3.Connection, path: Path) -> int:
    """The file's format; 0 for an empty file. Raises Unavailable for a later format than `FORMAT`."""
    version = int(log.execute("PRAGMA user_version").fetchone()[0])
    if version > FORMAT:
        raise Unavailable(
            f"{path} was written by a newer rowlock (format {version}, this one knows {FORMAT}): "
            "start that version, restore a backup made by this one or an older one, or choose another data directory"
        )
    return version


def upgrade(log: sqlite3.Connection, path: Path, version: int) -> None:
    """Upgrade from format `version` to `FORMAT` in one transaction: a crash in the middle leaves the old file."""
    log.execute("BEGIN IMMEDIATE")
    try:
        for row in read_rows(log, f"SELECT {COLUMNS} FROM log ORDER BY revision", path, _value_checksum):
            checksum = row_checksum(row_fields(row), row.value)
            log.execute("UPDATE log SET checksum = ? WHERE revision = ?", (checksum, row.revision))
        log.execute(f"PRAGMA user_version = {FORMAT}")
        log.execute("COMMIT")
    except BaseException:
        if log.in_transaction:
            log.execute("ROLLBACK")
        raise


def read_rows(
    log: sqlite3.Connection, query: str, path: Path, checksum: Callable[[RowFields, bytes], int] = row_checksum
) -> Iterator[Row]:
    """The rows of a query over `COLUMNS`, up to the first damaged one. Raises Unavailable that names the damaged rows, at the
    end of the query or where SQLite cannot go on."""
    damaged: list[str] = []
    last = 0
    try:
        for revision, previous, verb, kind, namespace, name, stored_checksum, value in log.execute(query):
            last = revision
            fields = (revision, previous, verb, kind, namespace, name)
            if not isinstance(value, bytes) or checksum(fields, value) != stored_checksum:
                damaged.append(f"{kind} {namespace + '/' if namespace else ''}{name} at revision {revision}")
            elif not damaged:
                yield Row(revision, previous, VERBS[verb], kind, namespace, name, value)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        found = f"; before it: {_name_damage(damaged)}" if damaged else ""
        raise damage_error(path, f"{error}: what follows revision {last} cannot be read{found}") from error
    if damaged:
        raise damage_error(path, f"wrong checksums: {_name_damage(damaged)}")


def _name_damage(damaged: list[str]) -> str:
    more = f" and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
    return ", ".join(damaged[:_MOST_NAMED]) + more


def damage_error(path: Path, why: str) -> Unavailable:
    """The error for a damaged database, with what the user can do about it."""
    return Unavailable(
        f"{path} is damaged ({why}); rowlock changed nothing in it: restore a backup into a new directory"
        " (`rowlock restore FILE --data-dir DIR`), or move the file away to start with an empty cluster"
    )


class TranslateErrors:
    """Context manager that turns SQLite's errors into one clear sentence each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, sqlite3.Error):
            return
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise damage_error(self._path, str(error)) from error
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
