"""`rowlock logs --fold`: equal lines of several ranks stand once, and nothing is lost or out of order."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator

import pytest

from rowlock.cli.logs.folding import LineFolder, fold_followed, fold_lines, join_labels


def fold(*lines: str, stamped: bool = False) -> list[str]:
    return [line.decode().rstrip("\n") for line in fold_lines([f"{one}\n".encode() for one in lines], stamped=stamped)]


def unfold(lines: list[str]) -> dict[str, list[str]]:
    """Each rank's lines."""
    found: dict[str, list[str]] = {}
    for line in lines:
        tag, _, text = line[1:].partition("] ")
        for span in tag.removeprefix("ranks ").removeprefix("rank ").split(","):
            first, _, last = span.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                found.setdefault(str(rank), []).append(text)
    return found


@pytest.mark.parametrize(
    ("lines", "folded"),
    [
        (["[rank 0] a", "[rank 1] a", "[rank 2] a"], ["[ranks 0-2] a"]),
        (["[rank 0] a", "[rank 1] b", "[rank 2] a"], ["[ranks 0,2] a", "[rank 1] b"]),
        (["[rank 0] a", "[rank 0] a", "[rank 1] a", "[rank 1] a"], ["[ranks 0-1] a", "[ranks 0-1] a"]),
        (["[rank 0] x", "[rank 0] a", "[rank 1] y", "[rank 1] a"], ["[rank 0] x", "[rank 1] y", "[ranks 0-1] a"]),
        (
            ["[rank 0] a", "[rank 0] b", "[rank 1] x", "[rank 1] y", "[rank 1] a", "[rank 1] z", "[rank 1] b"],
            ["[rank 1] x", "[rank 1] y", "[ranks 0-1] a", "[rank 1] z", "[ranks 0-1] b"],
        ),
        (["[rank 0] a", "[rank 0] b", "[rank 1] b", "[rank 1] a"], ["[rank 0] a", "[ranks 0-1] b", "[rank 1] a"]),
        (["[rank 0] a", "[rank 1] a", "[rank 0] b", "[rank 1] b"], ["[ranks 0-1] a", "[ranks 0-1] b"]),
        (["[launcher] a", "[worker 0] a", "[worker 1] a"], ["[launcher, workers 0-1] a"]),
        (
            ["rowlock: the log of rank 1 ends here: x", "[rank 0] a"],
            ["rowlock: the log of rank 1 ends here: x", "[rank 0] a"],
        ),
        (["no tag", "no tag"], ["no tag", "no tag"]),
        ([], []),
    ],
)
def test_equal_lines_stand_once(lines: list[str], folded: list[str]) -> None:
    assert fold(*lines) == folded


def test_times_differ_and_the_first_is_shown() -> None:
    lines = ["[rank 0] 2026-01-01T00:00:00Z a b", "[rank 1] 2026-01-01T00:00:01Z a b"]
    assert fold(*lines, stamped=True) == ["[ranks 0-1] 2026-01-01T00:00:00Z a b"]


@pytest.mark.parametrize("seed", range(30))
def test_no_rank_loses_a_line_or_its_order(seed: int) -> None:
    """Few texts for many lines, and a small window: they fold in every way."""
    rng = random.Random(seed)
    lines = [f"[rank {rng.randrange(5)}] {rng.choice('abc')}" for _ in range(rng.randrange(1, 80))]
    folder = LineFolder(window=rng.choice([1, 2, 5, 50]))
    folded = [out for line in lines for out in folder.add(f"{line}\n".encode())] + list(folder.take_all())
    texts = [line.decode().rstrip("\n") for line in folded]
    assert unfold(texts) == unfold(lines)
    assert not folder._by_text and not folder._by_label and len(texts) <= len(lines)
    assert all(re.match(r"\[ranks? [0-9,-]+\] ", text) for text in texts)


@pytest.mark.parametrize(
    ("labels", "joined"),
    [
        (["rank 3", "rank 1", "rank 2", "rank 7"], "ranks 1-3,7"),
        (["rank 10"], "rank 10"),
        (["chief", "worker 0", "ps 1", "ps 0"], "chief, worker 0, ps 0-1"),
    ],
)
def test_whose_a_line_is(labels: list[str], joined: str) -> None:
    assert join_labels(labels) == joined


def test_a_follower_does_not_hold_lines_back_for_ever() -> None:
    """The line comes although the log goes on and says nothing."""
    end = threading.Event()

    def log() -> Iterator[bytes]:
        yield b"[rank 0] a\n"
        yield b"[rank 1] a\n"
        assert end.wait(200)
        yield b"[rank 0] b\n"

    lines = fold_followed(log())
    assert next(lines) == b"[ranks 0-1] a\n"
    end.set()
    assert list(lines) == [b"[rank 0] b\n"]


def test_an_error_of_the_log_comes_behind_its_lines() -> None:
    def log() -> Iterator[bytes]:
        yield b"[rank 0] a\n"
        raise OSError("the server has gone")

    seen = list[bytes]()
    with pytest.raises(OSError, match="the server has gone"):
        for line in fold_followed(log()):
            seen.append(line)
    assert seen == [b"[rank 0] a\n"]
