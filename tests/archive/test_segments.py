"""What servers of one archive tell each other: in which order it is read, what is noticed to be missing, and whose word counts."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from rowlock.archive import database, segments
from rowlock.archive.database import UnusableArchive, put_note
from rowlock.archive.segments import SegmentName, Write

A, B = "aaaaaaaa", "bbbbbbbb"


def listing(*names: SegmentName, snapshots: tuple[SegmentName, ...] = ()) -> segments.Listing:
    return segments.parse_listing({**{n.segment: 1 for n in names}, **{n.snapshot: 1 for n in snapshots}})


def stream(term: int, writer: str, *numbers: int) -> list[SegmentName]:
    return [SegmentName(term, writer, number) for number in numbers]


def test_a_name_is_read_as_it_was_written_and_sorts_by_time() -> None:
    names = [SegmentName(2, B, 9), SegmentName(2, B, 10), SegmentName(10, A, 1)]
    assert sorted(n.segment for n in names) == [n.segment for n in names] and sorted(names) == names
    found = listing(*names, snapshots=(names[1],))
    assert list(found.segments) == names and found.newest_snapshot == names[1] and found.last_term == 10
    others = {"writes/x": 1, "logs/a.gz": 1, "writes/00000001-aaaaaaaa-00000001.seg.new": 1, "writes/../x": 1}
    assert segments.parse_listing(others) == segments.Listing()


def test_what_is_unread_comes_in_the_order_of_leaders() -> None:
    everything = listing(*stream(2, A, 1, 2), *stream(1, B, 1, 2, 3))
    unread = segments.unread_segments(everything, {f"00000001-{B}": 2})
    assert unread == ([*stream(1, B, 3), *stream(2, A, 1, 2)], False)
    assert segments.unread_segments(everything, {f"00000001-{B}": 3}, own=f"00000002-{A}") == ([], False)


@pytest.mark.parametrize(
    ("names", "snapshots", "positions", "has_gap"),
    [
        (stream(1, A, 2, 3), (), {}, True),
        (stream(1, A, 1, 3), (), {}, True),
        (stream(1, A, 5, 6), (), {f"00000001-{A}": 4}, False),
        ([], stream(1, A, 7), {}, True),
        ([], stream(1, A, 7), {f"00000001-{A}": 7}, False),
        ([], stream(1, A, 7), {f"00000001-{A}": 6}, True),
        (stream(1, A, 7), stream(1, A, 7), {f"00000001-{A}": 6}, False),
        (stream(2, B, 1), stream(2, B, 1), {f"00000001-{A}": 4}, False),
    ],
)
def test_what_is_gone_is_noticed(
    names: list[SegmentName], snapshots: list[SegmentName], positions: dict[str, int], has_gap: bool
) -> None:
    found = listing(*names, snapshots=tuple(snapshots))
    assert segments.unread_segments(found, positions).has_gap == has_gap


def test_only_segments_of_this_version_are_read() -> None:
    name = SegmentName(1, A, 1)
    writes = segments.encode_writes([put_note("cut", "x")])
    assert segments.unpack_segment(name, segments.pack_segment(writes)) == writes == [("note", ["cut", "x"])]
    for content in (b"", b"rowlock2...", b"rowlock1 is no zlib", segments.pack_segment([("drop everything", [])])):
        with pytest.raises(UnusableArchive, match=r"00000001-aaaaaaaa-00000001.*same version"):
            segments.unpack_segment(name, content)


def note(name: str, text: str) -> list[Write]:
    return segments.encode_writes([put_note(name, text)])


def notes(connection: sqlite3.Connection) -> dict[str, str]:
    return {name: text for name, text in database.read_notes(connection).items() if not name.startswith("read ")}


def test_late_words_add_and_change_nothing(tmp_path: Path) -> None:
    connection = database.open_database(tmp_path / "archive.db", writes=True)
    new, late = SegmentName(2, B, 1), SegmentName(1, A, 5)
    segments.apply_writes(connection, note("x", "new"), new)
    assert segments.is_late(late.stream, segments.read_positions(connection))
    words = [*note("x", "old"), *note("y", "old"), ("cut run", ["u"])]
    segments.apply_writes(connection, words, late, is_late=True)
    assert notes(connection) == {"x": "new", "y": "old"}
    assert segments.read_positions(connection) == {new.stream: 1, late.stream: 5}
    connection.close()


def test_a_segment_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    connection = database.open_database(tmp_path / "archive.db", writes=True)
    with pytest.raises(sqlite3.Error):
        segments.apply_writes(connection, [*note("x", "1"), ("run", [])], SegmentName(1, A, 1))
    assert notes(connection) == {} and segments.read_positions(connection) == {}
    connection.close()


@pytest.mark.parametrize("seed", range(20))
def test_who_reads_now_and_then_ends_with_the_same_as_who_reads_at_the_end(tmp_path: Path, seed: int) -> None:
    """Random leaders, each of which may say a last word after its successor has begun."""
    chance = random.Random(seed)
    told: list[tuple[SegmentName, list[Write]]] = []
    for term in range(1, 5):
        words = [
            (SegmentName(term, A, n), note(chance.choice("xyz"), f"{term}.{n}")) for n in range(1, chance.randint(2, 4))
        ]
        if told and chance.random() < 0.7:  # the last word of the one before comes late, about something of its own
            last, _ = told[-1]
            words.insert(1, (last._replace(number=last.number + 1), note(f"late{term}", "old")))
        told += words

    def read(places: list[int], name: str) -> dict[str, str]:
        connection = database.open_database(tmp_path / name, writes=True)
        for place in places:
            there = dict(told[:place])
            found = listing(*there)
            positions = segments.read_positions(connection)
            unread = segments.unread_segments(found, positions)
            assert not unread.has_gap
            for one in unread.segments:
                late = segments.is_late(one.stream, positions)
                segments.apply_writes(connection, there[one], one, is_late=late)
                positions[one.stream] = one.number
        result = notes(connection)
        connection.close()
        return result

    now_and_then = sorted(chance.sample(range(1, len(told)), min(4, len(told) - 1)))
    assert read([*now_and_then, len(told)], "often.db") == read([len(told)], "once.db")
