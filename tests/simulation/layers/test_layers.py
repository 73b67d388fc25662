"""Worlds of Jobs, JobSets and TrainJobs; `make soak` plays them, too.

    python -m tests.simulation.layers.test_layers SEED [contested]     tells the story of one world

Every seed that ever failed is in `seeds.txt` with what it taught, and is played first.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.layers.build import build, contested, play
from tests.simulation.layers.invariants import ENDS, ended
from tests.simulation.test_seeds import failures, known_seeds

SEEDS, CHUNK = 60, 20


@pytest.mark.parametrize(("seed", "quarrel"), known_seeds(Path(__file__).with_name("seeds.txt")))
def test_seeds_that_taught_us_something(seed: int, quarrel: bool) -> None:
    assert not failures([seed], contested if quarrel else build, play)


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_worlds(start: int) -> None:
    assert not failures(range(start, start + CHUNK), build, play)


def test_contested_worlds() -> None:
    assert not failures(range(CHUNK), contested, play)


def test_every_kind_succeeds_and_fails_in_some_world() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(40):
        for change in play(seed, build(seed)).log:
            if change.kind in ENDS:
                seen[change.kind.plural, ended(change.kind, change.object)[:6]] += 1
    for kind in ENDS:
        assert seen[kind.plural, "Comple"] and seen[kind.plural, "Failed"], seen


if __name__ == "__main__":
    seed = int(sys.argv[1])
    told = contested(seed) if "contested" in sys.argv else build(seed)
    try:
        play(seed, told)
    finally:
        print("\n".join(told.story))
