"""Five hundred worlds in `make test`, a hundred thousand in `make soak` (see soak.py).

    python -m tests.simulation.test_seeds SEED [contested]     tells the story of one world

Every seed that ever failed is in `seeds.txt` with what it taught, and is played first.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.simulation import invariants, plot
from tests.simulation.careless import Careless
from tests.simulation.world import Broken, World, collectors

from rowlock.api import Controller
from rowlock.kinds import PYTORCHJOB
from rowlock.scheduling.controller import Scheduler
from rowlock.storage import bootstrap
from rowlock.training.controller import JobController
from rowlock.training.pod_group import PodGroupController

SEEDS = 500
CHUNK = 25


def known_seeds(file: Path) -> list[tuple[int, bool]]:
    """The seeds of a `seeds.txt`, and whether their worlds are contested."""
    lines = (line.split() for line in file.read_text().splitlines())
    return [(int(words[0]), "contested" in words[1:2]) for words in lines if words and words[0].isdigit()]


def operator() -> Controller:
    return JobController(PYTORCHJOB)


def build(seed: int, scheduler: Callable[[], Controller] = Scheduler) -> World:
    makers: list[Callable[[], Controller]] = [operator, PodGroupController, scheduler, *collectors()]
    return World(seed, makers, invariants.after_write)


def play(seed: int, world: World | None = None) -> World:
    """One world from its first day to calm. Raises Broken, or whatever a controller raises."""
    world = world or build(seed)
    plot.prologue(world, bootstrap.initial_objects())
    for number in range(world.dice.choice((4, 10, 20))):
        plot.disturb(world, number)
        for _ in range(world.dice.choice((0, 5, 30))):
            if not world.step():
                world.pass_time(world.now + 10)
    plot.epilogue(world)
    world.settle(600 * world.disk.pace)
    invariants.at_calm(world)
    return world


def contested(seed: int) -> World:
    world = build(seed)
    world.contested, world.disk.pace = True, 5.0
    return world


def failures(
    seeds: Iterable[int],
    make: Callable[[int], World] = build,
    played: Callable[[int, World], World] = play,
) -> list[str]:
    found = []
    for seed in seeds:
        try:
            played(seed, make(seed))
        except Exception as error:  # noqa: BLE001 (any failure of a world is a finding, with its seed)
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"seed {seed}: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})")
    return found


@pytest.mark.parametrize(("seed", "quarrel"), known_seeds(Path(__file__).with_name("seeds.txt")))
def test_seeds_that_taught_us_something(seed: int, quarrel: bool) -> None:
    assert not failures([seed], contested if quarrel else build)


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_worlds(start: int) -> None:
    assert not failures(range(start, start + CHUNK))


@pytest.mark.parametrize("start", range(0, SEEDS // 5, CHUNK))
def test_contested_worlds(start: int) -> None:
    assert not failures(range(start, start + CHUNK), contested)


def test_a_scheduler_takes_pods_back_in_contested_worlds() -> None:
    taken = [sum("DisruptionTarget=True" in line for line in play(seed, contested(seed)).story) for seed in range(20)]
    assert sum(map(bool, taken)) >= 5, taken


def test_a_scheduler_without_gangs_is_caught() -> None:
    def caught(seed: int) -> bool:
        try:
            play(seed, build(seed, Careless))
        except Broken as broken:
            return "hangs with" in str(broken)
        return False

    assert any(caught(seed) for seed in range(200))


def test_the_same_seed_is_the_same_world() -> None:
    assert play(7).story == play(7).story


if __name__ == "__main__":
    seed = int(sys.argv[1])
    told = contested(seed) if "contested" in sys.argv else build(seed)
    try:
        play(seed, told)
    finally:
        print("\n".join(told.story))
