"""What servers that share an archive tell each other: segments, which are a few writes each, and snapshots of the whole database.

The leader writes a stream of segments, numbered from 1; the streams of later leaders sort behind those of earlier ones. A server that has
read all segments in this order has what the leader has. A leader that was replaced and does not know it yet may write a last segment: it is
*late* for a server that has read one of its successor's, and then adds what is missing and changes nothing. A snapshot
tells all up to the segment whose name it has; what it covers can then be removed. A note says that one was made, so that the next
leader knows it, too.
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
"""What the names of notes begin with that say how far a stream was read."""
_SNAPSHOT = "snapshot"
"""The name of the note that tells of the last snapshot."""
Write = tuple[str, list[Any]]
"""A name of `WRITES`, and the values."""
_decoder = msgspec.msgpack.Decoder(list[Write])


class SegmentName(NamedTuple):
    """A segment, or the last one that a snapshot covers. `writer` is drawn by lot: two servers never write the same object."""

    term: int
    writer: str
    number: int

    @property
    def stream(self) -> str:
        return f"{self.term:08}-{self.writer}"

    @property
    def segment(self) -> str:
        """Its name in the bucket."""
        return f"{FOLDER}/{self.stream}-{self.number:08}.seg"

    @property
    def snapshot(self) -> str:
        """The name in the bucket of a snapshot that goes so far."""
        return f"{FOLDER}/{self.stream}-{self.number:08}.db"


@dataclass(slots=True)
class Listing:
    """What is in the bucket, with sizes in bytes."""

    segments: dict[SegmentName, int] = field(default_factory=dict)
    snapshots: dict[SegmentName, int] = field(default_factory=dict)

    @property
    def newest_snapshot(self) -> SegmentName | None:
        return max(self.snapshots, default=None)

    @property
    def last_term(self) -> int:
        return max((name.term for name in (*self.segments, *self.snapshots)), default=0)


def parse_listing(names: Mapping[str, int]) -> Listing:
    """Objects with other names are not ours."""
    listing = Listing()
    for name, size in names.items():
        if found := _NAME.fullmatch(name):
            parsed = SegmentName(int(found[1]), found[2], int(found[3]))
            (listing.segments if found[4] == "seg" else listing.snapshots)[parsed] = size
    return listing


class SnapshotNote(msgspec.Struct, frozen=True):
    """What a leader says of the snapshot that it has made: its name in the bucket, how far it goes in each stream, and when."""

    name: str
    positions: dict[str, int]
    made_at: float

    def to_statement(self) -> Statement:
        return put_note(_SNAPSHOT, msgspec.json.encode(self).decode())

    def list_superseded(self, listing: Listing) -> list[str]:
        """The objects that nobody needs who has this snapshot, in the order in which they may be removed; none where it is not there."""
        if self.name not in (name.snapshot for name in listing.snapshots):
            return []
        covered = sorted((s for s in listing.segments if s.number <= self.positions.get(s.stream, 0)), reverse=True)
        return [s.segment for s in covered] + sorted(s.snapshot for s in listing.snapshots if s.snapshot < self.name)


def read_snapshot_note(database: sqlite3.Connection) -> SnapshotNote | None:
    """The last one's; None where nobody has told of any."""
    row = database.execute("SELECT text FROM notes WHERE name = ?", (_SNAPSHOT,)).fetchone()
    try:
        return msgspec.json.decode(row[0], type=SnapshotNote) if row else None
    except msgspec.DecodeError:
        return None  # a later rowlock says it otherwise


class Unread(NamedTuple):
    """The segments to read, in this order; `has_gap`: before them others are gone, so that a snapshot has to be read first."""

    segments: list[SegmentName]
    has_gap: bool


def unread_segments(listing: Listing, positions: Mapping[str, int], own: str = "") -> Unread:
    """By what was read of each stream so far. The stream `own` is not read: this server wrote it."""
    wanted = sorted(s for s in listing.segments if s.stream != own and s.number > positions.get(s.stream, 0))
    reached, has_gap = dict(positions), False
    for segment in wanted:
        has_gap = has_gap or segment.number != reached.get(segment.stream, 0) + 1
        reached[segment.stream] = segment.number
    snapshot = listing.newest_snapshot
    if snapshot is not None and snapshot.stream != own and reached.get(snapshot.stream, 0) < snapshot.number:
        has_gap = True  # all that was behind what was read is gone
    return Unread(wanted, has_gap)


def missing_segments(wanted: Sequence[SegmentName], positions: Mapping[str, int]) -> list[SegmentName]:
    """Those before and between them that a list did not show: a directory may show a later file and not yet an earlier one. None
    where so many are missing that they were removed."""
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
    """The name of the object that says whose archive it is: the cluster of this uid's."""
    return f"{FOLDER}/cluster-{cluster}"


def marked_clusters(names: Iterable[str]) -> set[str]:
    """The clusters whose archive it is, by what is in the bucket; one, unless somebody mixed two."""
    return {found[1] for name in names if (found := _MARK.fullmatch(name))}


def encode_writes(statements: Iterable[Statement]) -> list[Write]:
    """The same, as they are told."""
    return [(_NAMES[statement.sql], statement.encoded_values()) for statement in statements]


def pack_segment(writes: Sequence[Write]) -> bytes:
    return _MAGIC + zlib.compress(msgspec.msgpack.encode(writes), 1)


def unpack_segment(name: SegmentName, content: bytes) -> list[Write]:
    """Raises UnusableArchive for what a later rowlock wrote, or nobody."""
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
    """All of a segment and the note that it was read, or nothing. Raises sqlite3.Error."""
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
    """How far each stream was read."""
    rows = database.execute("SELECT name, text FROM notes WHERE name LIKE ?", (f"{_POSITION}%",))
    return {name.removeprefix(_POSITION): int(text) for name, text in rows}


def is_late(stream: str, positions: Mapping[str, int]) -> bool:
    """Whether a later leader's words were read already."""
    return any(other > stream for other in positions)
