"""What servers that share an archive exchange: segments, each a few writes, and snapshots of the whole database.

The leader writes a stream of segments, numbered from 1; streams of later leaders sort after those of earlier ones. A server that has
read all segments in this order has the leader's state. A replaced leader that does not know it yet may write one more segment: it is
*late* for a server that has read one of its successor's, and then only adds missing rows and changes none. A snapshot
contains everything up to the segment of the same name; the segments that it covers can then be removed. A note records the snapshot
for the next leader.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from rowlock.archive.database import WRITES, Statement, UnusableArchive, put_note

FOLDER = "writes"
_MAGIC = b"rowlock1"
_NAME = re.compile(r"writes/([0-9]{8})-([0-9a-f]{8})-([0-9]{8})\.(seg|db)")
_MARK = re.compile(r"writes/cluster-([0-9A-Za-z.-]{1,64})")
_MOST_MISSING = 100
_NAMES = {sql: name for name, sql in WRITES.items()}
_REPLACE, _ADD = "INSERT OR REPLACE", "INSERT OR IGNORE"
_POSITION = "read "
"""Prefix of the names of notes that record how far a stream was read."""
_SNAPSHOT = "snapshot"
"""The name of the note about the last snapshot."""
Write = tuple[str, list[Any]]
"""A name in `WRITES`, and the statement's values."""
_decoder = msgspec.msgpack.Decoder(list[Write])


class SegmentName(NamedTuple):
    """A segment, or the last one that a snapshot covers. `writer` is random, so that two servers never write the same object."""

    term: int
    writer: str
    number: int

    @property
    def stream(self) -> str:
        return f"{self.term:08}-{self.writer}"

    @property
    def segment(self) -> str:
        """The segment's name in the bucket."""
        return f"{FOLDER}/{self.stream}-{self.number:08}.seg"

    @property
    def snapshot(self) -> str:
        """The name in the bucket of the snapshot up to this segment."""
        return f"{FOLDER}/{self.stream}-{self.number:08}.db"


@dataclass(slots=True)
class Listing:
    """The segments and snapshots in the bucket, with sizes in bytes."""

    segments: dict[SegmentName, int] = field(default_factory=dict)
    snapshots: dict[SegmentName, int] = field(default_factory=dict)

    @property
    def newest_snapshot(self) -> SegmentName | None:
        return max(self.snapshots, default=None)

    @property
    def last_term(self) -> int:
        return max((name.term for name in (*self.segments, *self.snapshots)), default=0)


def parse_listing(names: Mapping[str, int]) -> Listing:
    """Parse the names of objects; others than segments and snapshots are ignored."""
    listing = Listing()
    for name, size in names.items():
        if found := _NAME.fullmatch(name):
            parsed = SegmentName(int(found[1]), found[2], int(found[3]))
            (listing.segments if found[4] == "seg" else listing.snapshots)[parsed] = size
    return listing


class SnapshotNote(msgspec.Struct, frozen=True):
    """A leader's note about its snapshot: its name in the bucket, the last segment covered of each stream, and its time."""

    name: str
    positions: dict[str, int]
    made_at: float

    def to_statement(self) -> Statement:
        return put_note(_SNAPSHOT, msgspec.json.encode(self).decode())

    def list_superseded(self, listing: Listing) -> list[str]:
        """The objects that this snapshot makes unnecessary, in the order of removal; none when it is not in the bucket."""
        if self.name not in (name.snapshot for name in listing.snapshots):
            return []
        covered = sorted((s for s in listing.segments if s.number <= self.positions.get(s.stream, 0)), reverse=True)
        return [s.segment for s in covered] + sorted(s.snapshot for s in listing.snapshots if s.snapshot < self.name)


def read_snapshot_note(database: sqlite3.Connection) -> SnapshotNote | None:
    """The note about the last snapshot; None when there is none, or it cannot be read."""
    row = database.execute("SELECT text FROM notes WHERE name = ?", (_SNAPSHOT,)).fetchone()
    try:
        return msgspec.json.decode(row[0], type=SnapshotNote) if row else None
    except msgspec.DecodeError:
        return None  # a later rowlock has another format


class Unread(NamedTuple):
    """The segments to read, in order; `has_gap`: earlier ones have been removed, so a snapshot must be read first."""

    segments: list[SegmentName]
    has_gap: bool


def unread_segments(listing: Listing, positions: Mapping[str, int], own: str = "") -> Unread:
    """The segments after `positions`, the last number read of each stream. The stream `own` is skipped: this server wrote it."""
    wanted = sorted(s for s in listing.segments if s.stream != own and s.number > positions.get(s.stream, 0))
    reached, has_gap = dict(positions), False
    for segment in wanted:
        has_gap = has_gap or segment.number != reached.get(segment.stream, 0) + 1
        reached[segment.stream] = segment.number
    snapshot = listing.newest_snapshot
    if snapshot is not None and snapshot.stream != own and reached.get(snapshot.stream, 0) < snapshot.number:
        has_gap = True  # all segments after the last one read have been removed
    return Unread(wanted, has_gap)


def missing_segments(wanted: Sequence[SegmentName], positions: Mapping[str, int]) -> list[SegmentName]:
    """Segments before and between `wanted` that a listing did not show: a directory may show a later file before an earlier one.
    Empty when so many are missing that they must have been removed."""
    missing: list[SegmentName] = []
    reached = dict(positions)
    for segment in wanted:
        first = reached.get(segment.stream, 0) + 1
        if segment.number - first + len(missing) > _MOST_MISSING:
            return []
        missing += [segment._replace(number=number) for number in range(first, segment.number)]
        reached[segment.stream] = segment.number
    return missing


def mark_of(cluster: str) -> str:
    """The name of the object that marks the archive as belonging to the cluster with this uid."""
    return f"{FOLDER}/cluster-{cluster}"


def marked_clusters(names: Iterable[str]) -> set[str]:
    """The uids of the clusters that have marked the archive: one, unless two share it by mistake."""
    return {found[1] for name in names if (found := _MARK.fullmatch(name))}


def encode_writes(statements: Iterable[Statement]) -> list[Write]:
    """Statements as they are written into a segment."""
    return [(_NAMES[statement.sql], statement.encoded_values()) for statement in statements]


def pack_segment(writes: Sequence[Write]) -> bytes:
    return _MAGIC + zlib.compress(msgspec.msgpack.encode(writes), 1)


def unpack_segment(name: SegmentName, content: bytes) -> list[Write]:
    """The writes of a segment. Raises UnusableArchive when it is damaged, or a later rowlock wrote it."""
    try:
        if not content.startswith(_MAGIC):
            raise ValueError("it begins otherwise")
        writes = _decoder.decode(zlib.decompress(content[len(_MAGIC) :]))
        if unknown := {what for what, _ in writes} - WRITES.keys():
            raise ValueError(f"it has {', '.join(sorted(unknown))}")
    except (ValueError, zlib.error) as error:
        raise UnusableArchive(
            f"{name.segment} is no segment that this rowlock can read ({error}): give all servers of an archive the same version"
        ) from error
    return writes


def apply_writes(
    database: sqlite3.Connection, writes: Sequence[Write], name: SegmentName, *, is_late: bool = False
) -> None:
    """Apply a segment and note its number, in one transaction. Raises sqlite3.Error."""
    database.execute("BEGIN IMMEDIATE")
    try:
        for what, alike in itertools.groupby(writes, itemgetter(0)):
            sql = WRITES[what]
            if is_late:
                if not sql.startswith(_REPLACE):
                    continue
                sql = _ADD + sql.removeprefix(_REPLACE)
            database.executemany(sql, (values for _, values in alike))
        database.execute(WRITES["note"], (f"{_POSITION}{name.stream}", str(name.number)))
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise


def read_positions(database: sqlite3.Connection) -> dict[str, int]:
    """The number of the last segment read of each stream."""
    rows = database.execute("SELECT name, text FROM notes WHERE name LIKE ?", (f"{_POSITION}%",))
    return {name.removeprefix(_POSITION): int(text) for name, text in rows}


def is_late(stream: str, positions: Mapping[str, int]) -> bool:
    """Whether a segment of a later leader has been read already."""
    return any(other > stream for other in positions)
