"""Where a reader of a log is: streams that break anywhere, within a line or its time stamp, give each byte once."""

from __future__ import annotations

import random

import pytest

from rowlock.kube.followed_logs.position import LogPosition


def kept_lines(draw: random.Random) -> list[bytes]:
    """Lines as a kubelet keeps them: many of one second, some of one stamp, some whose stamp is a little older than the last one's."""
    lines, second = [], 10
    for number in range(draw.randrange(1, 60)):
        second += draw.random() < 0.2
        fraction = draw.choice(["1", "100000000", "250000000", "3", "999999999"])
        text = draw.choice(
            ["", "a", f"line {number}", "with spaces  and\ttabs", "bar 10%\rbar 20%", "x" * draw.randrange(200)]
        )
        lines.append(f"2026-11-30T04:00:{second:02}.{fraction}Z {text}\n".encode())
    return lines


def stream_of(lines: list[bytes], second: int | None) -> bytes:
    """What an API server sends: it knows whole seconds."""
    return b"".join(line for line in lines if second is None or int(line[17:19]) >= second % 60)


def in_pieces(text: bytes, draw: random.Random) -> list[bytes]:
    pieces = []
    while text:
        size = draw.randrange(1, 60)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def shown(lines: list[bytes], *, timestamps: bool) -> bytes:
    return b"".join(line if timestamps else line.partition(b" ")[2] for line in lines)


@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("seed", range(150))
def test_streams_that_break_anywhere_lose_and_double_nothing(seed: int, *, timestamps: bool) -> None:
    draw = random.Random(seed)
    lines = kept_lines(draw)
    position, written, read = LogPosition(timestamps=timestamps), 0, b""
    while True:
        written = min(len(lines), written + draw.randrange(20))
        is_last = written == len(lines) and draw.random() < 0.5
        text = stream_of(lines[:written], position.begin())
        for piece in in_pieces(text if is_last else text[: draw.randrange(len(text) + 1)], draw):
            read += position.feed(piece)
            assert shown(lines, timestamps=timestamps).startswith(read)
        assert not position.is_elsewhere
        if is_last:
            break
    assert read + position.finish() == shown(lines, timestamps=timestamps)


def test_the_log_of_the_next_run_is_not_taken_for_the_rest() -> None:
    position = LogPosition(timestamps=False)
    position.begin()
    assert position.feed(b"2026-11-30T04:00:01.5Z one\n2026-11-30T04:00:01.6Z hal") == b"one\nhal"
    assert position.begin() == 1796011201
    assert position.feed(b"2026-11-30T04:00:01.9Z of another run\n") == b"" and position.is_elsewhere
    assert not position.has_found_place


def test_a_rotated_log_goes_on_after_a_gap_that_is_accepted() -> None:
    position = LogPosition(timestamps=False)
    position.begin()
    position.feed(b"2026-11-30T04:00:01.5Z one\n2026-11-30T04:00:01.6Z hal")
    position.begin()
    assert position.accept_gap() == b"\n"
    assert position.feed(b"2026-11-30T04:00:03.1Z new\n") == b"new\n"


def test_a_line_that_the_kubelet_itself_writes_is_passed_on() -> None:
    position = LogPosition(timestamps=True)
    position.begin()
    said = b"failed to watch file: too many open files\n"
    assert position.feed(b"2026-11-30T04:00:01.5Z one\n" + said) == b"2026-11-30T04:00:01.5Z one\n" + said
    position.begin()
    assert position.feed(b"2026-11-30T04:00:01.5Z one\n2026-11-30T04:00:01.6Z two\n") == b"2026-11-30T04:00:01.6Z two\n"


def test_times_of_another_zone_are_compared_as_times() -> None:
    position = LogPosition(timestamps=False)
    position.begin()
    assert position.feed(b"2026-11-30T05:00:01.5+01:00 one\n2026-11-30T05:00:02.25+01:00 two\n") == b"one\ntwo\n"
    assert position.begin() == 1796011202
    assert position.feed(b"2026-11-30T05:00:02.25+01:00 two\n2026-11-30T05:00:02.5+01:00 three\n") == b"three\n"
