"""The server dies between any two writes, its controllers lag behind, users finish and delete runs: each run is made exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.sweeps.build import KEY, NAMESPACE, make_sweep

from rowlock import kinds, objects
from rowlock.api import Change, Create, Record
from rowlock.controllers.writer import execute_write
from rowlock.errors import AlreadyExists, Conflict
from rowlock.kinds import PYTORCHJOB
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.storage.write_verbs import AlwaysAdmit
from rowlock.sweeps.controller import SweepController
from rowlock.sweeps.reconcile import has_ended
from rowlock.sweeps.sweep import begun_runs, index_of, object_name, to_object

PARALLEL = 3
SWEEP = make_sweep(maxParallel=PARALLEL, parameters={"lr": "1..4", "seed": "1..3"})
WHERE = Key(NAMESPACE, object_name(SWEEP.name))


class World:
    """A store, a controller that may die, and what happens to jobs."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store.open(None, admission=lambda view: AlwaysAdmit())
        self.undelivered: list[Change] = []
        self.made: Counter[str] = Counter()
        self.store.view.observe((kinds.CONFIG_MAP, PYTORCHJOB), self.undelivered.append)
        self.controller = SweepController(KEY, lambda *_: True)

    async def submit(self) -> Object:
        await self.store.create(kinds.NAMESPACE, {"metadata": {"name": NAMESPACE}})
        return await self.store.create(kinds.CONFIG_MAP, to_object(SWEEP, NAMESPACE, KEY))

    def start_anew(self) -> None:
        """A server that starts knows nothing but what the store has."""
        self.controller = SweepController(KEY, lambda *_: True)
        self.undelivered[:] = [
            Change("Added", objects.revision(obj), kind, obj)
            for kind in (PYTORCHJOB, kinds.CONFIG_MAP)
            for obj in self.store.view.all(kind)
        ]

    def deliver(self, count: int) -> None:
        for change in self.undelivered[:count]:
            list(self.controller.keys(self.store.view, change))
        del self.undelivered[:count]

    async def take_turn(self, *, may_die: bool) -> None:
        """One turn of the controller, of which perhaps only the first writes are done."""
        for write in self.controller.decide(self.store.view, WHERE, 0.0).writes:
            if isinstance(write, Record):
                continue
            if may_die and self.chance.random() < 0.3:
                self.start_anew()
                return
            try:
                await execute_write(self.store, write)
            except (AlreadyExists, Conflict):
                return  # the turn ends, and the key is tried again
            if isinstance(write, Create):
                self.made[objects.name(write.object)] += 1

    def jobs(self) -> list[Object]:
        return list(self.store.view.all(PYTORCHJOB, NAMESPACE))

    async def live(self) -> None:
        """Some job ends, and a user may delete one that has ended."""
        sweep = self.store.view.get(kinds.CONFIG_MAP, *WHERE)
        assert sweep is not None
        for job in self.jobs():
            index = index_of(job, SWEEP)
            assert index is not None
            if not has_ended(job) and self.chance.random() < 0.4:
                status = {"conditions": [{"type": self.chance.choice(("Succeeded", "Failed")), "status": "True"}]}
                await self.store.update(PYTORCHJOB, {**job, "status": status}, subresource="status")
            elif index < begun_runs(sweep) and has_ended(job) and self.chance.random() < 0.2:
                await self.store.delete(PYTORCHJOB, NAMESPACE, objects.name(job))

    def check(self) -> None:
        assert all(count == 1 for count in self.made.values()), self.made
        assert sum(not has_ended(job) for job in self.jobs()) <= PARALLEL


async def play(seed: int) -> None:
    world = World(seed)
    try:
        await world.submit()
        for _ in range(200):
            world.deliver(world.chance.randrange(len(world.undelivered) + 1))
            await world.take_turn(may_die=True)
            world.check()
            await world.live()
        for _ in range(2 * SWEEP.total):  # from here on nothing dies
            world.deliver(len(world.undelivered))
            await world.take_turn(may_die=False)
            world.check()
            await world.live()
        assert set(world.made) == {SWEEP.run_name(index) for index in range(SWEEP.total)}
    finally:
        await world.store.close()


@pytest.mark.parametrize("seed", range(20))
def test_each_run_is_made_once(seed: int) -> None:
    asyncio.run(play(seed))


def test_a_sweep_that_was_edited_makes_nothing() -> None:
    async def edit() -> list[str]:
        world = World(0)
        try:
            made = await world.submit()
            world.deliver(1)
            assert world.controller.decide(world.store.view, WHERE, 0.0).writes
            data = {name: text.replace("train.py", "steal.py") for name, text in made["data"].items()}
            await world.store.update(kinds.CONFIG_MAP, {**made, "data": data})
            world.deliver(1)
            writes = world.controller.decide(world.store.view, WHERE, 0.0).writes
            return [write.reason if isinstance(write, Record) else type(write).__name__ for write in writes]
        finally:
            await world.store.close()

    assert asyncio.run(edit()) == ["NotSealed"]
