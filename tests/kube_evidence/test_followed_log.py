"""A followed log: whatever breaks the stream, each line is in the file once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rowlock.kube_evidence.followed_log import FollowedLog

LINES = [f"2026-11-23T21:00:{n // 4:02}.{n % 4 // 2}00000000Z line {n}\n".encode() for n in range(120)]
"""Four a second, two of each stamp."""


def since(lines: list[bytes], second: float | None) -> list[bytes]:
    """What an API server sends of them: it knows whole seconds."""
    first = 0 if second is None else next(n for n, line in enumerate(lines) if int(line[17:19]) == int(second) % 60)
    return lines[first:]


@pytest.mark.parametrize("seed", range(30))
def test_streams_that_break_anywhere_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    draw, log = random.Random(seed), FollowedLog(tmp_path / "pod" / "main.0.log")
    written = 0
    while not (log.path.exists() and log.path.read_bytes() == b"".join(LINES)):
        written = min(len(LINES), written + draw.randrange(30))
        if draw.random() < 0.5:
            log = FollowedLog(log.path)  # another process goes on
        text = b"".join(since(LINES[:written], log.begin()))
        text = text[: draw.randrange(len(text) + 1) if written < len(LINES) else None]
        while text:
            size = draw.randrange(1, 200)
            log.append(text[:size])
            text = text[size:]
        assert b"".join(LINES).startswith(log.path.read_bytes())


def test_a_log_without_end_keeps_its_last_half(tmp_path: Path) -> None:
    log = FollowedLog(tmp_path / "pod" / "main.0.log", max_bytes=4000)
    log.begin()
    for line in LINES * 3:
        log.append(line)
    kept = log.path.read_bytes()
    assert 2000 - 60 < len(kept) <= 4000 and kept.endswith(LINES[-1]) and kept.splitlines(True)[0] in LINES


def test_times_of_another_zone_and_of_fewer_digits_are_compared_as_times(tmp_path: Path) -> None:
    log = FollowedLog(tmp_path / "pod" / "main.0.log")
    log.begin()
    first = b"2026-11-23T22:00:00.5+01:00 half\n"
    log.append(first)
    assert log.begin() == 1795467600.0
    log.append(first + b"2026-11-23T22:00:00.25+01:00 odd\n2026-11-23T22:00:00.51+01:00 next\n")
    assert log.path.read_bytes().splitlines() == [first.rstrip(), b"2026-11-23T22:00:00.51+01:00 next"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "main.0.log").symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        FollowedLog(tmp_path / "pod" / "main.0.log").append(LINES[0])
    assert not (tmp_path / "other").exists()
