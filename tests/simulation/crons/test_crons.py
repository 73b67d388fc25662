"""Worlds of CronJobs.

python -m tests.simulation.crons.test_crons SEED     tells the story of one world
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from tests.simulation.crons.build import build, play
from tests.simulation.test_seeds import failures

from rowlock.kinds import EVENT

SEEDS, CHUNK = 60, 20


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_worlds(start: int) -> None:
    assert not failures(range(start, start + CHUNK), build, play)


def test_every_event_is_told_in_some_world() -> None:
    told: Counter[str] = Counter()
    for seed in range(40):
        told.update(c.object["reason"] for c in play(seed).log if c.kind is EVENT and c.type == "Added")
    wanted = {
        "SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete", "JobAlreadyActive", "MissingJob", "MissSchedule", "UnexpectedJob", "InvalidSchedule",
    }  # fmt: skip
    assert wanted <= told.keys(), f"never: {wanted - told.keys()}"


if __name__ == "__main__":
    seed = int(sys.argv[1])
    world = build(seed)
    try:
        play(seed, world)
    finally:
        print("\n".join(world.story))
