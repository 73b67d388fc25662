"""Random clusters, step by step: what must hold after every cycle, whatever happens.

Steps: gangs come and go, pods end, nodes are cordoned, quotas change, evicted pods come back. ROWLOCK_STEPS sets how
many steps run in all (100,000 in the soak).
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace

import pytest

from rowlock.scheduling.amounts import UNLIMITED, WHOLE
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner, plan
from rowlock.scheduling.snapshot import (
    Gang,
    Node,
    PodSet,
    Queue,
    Reservation,
    Shape,
    Snapshot,
    Status,
    Task,
    dumps,
    loads,
)
from rowlock.scheduling.world import World, build

STEPS = int(os.environ.get("ROWLOCK_STEPS", "600"))
SEEDS = max(12, STEPS // 200)  # clusters fill up: after some hundred steps all that is new is more of the same
GB = 10**9


@dataclass
class Cluster:
    """A random cluster that carries out what the planner decides."""

    random: random.Random
    now: float = 1000.0
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    promises: tuple[Reservation, ...] = ()
    serial: int = 0

    def build(self) -> None:
        r = self.random
        for i in range(r.randint(1, 4)):
            self.nodes[f"n{i}"] = Node(
                f"n{i}", cpu=r.choice([8000, 64000]), memory=64 * GB, gpus=r.choice([0, 1, 2, 4]), gpu_memory=1000
            )
        for d in range(r.randint(1, 2)):
            self.queues[f"d{d}"] = Queue(f"d{d}", quota=(-1, -1, r.choice([-1, 200, 400])), created=float(d))
            for p in range(r.randint(1, 3)):
                name = f"d{d}p{p}"
                self.queues[name] = self._queue(name, f"d{d}")

    def _queue(self, name: str, parent: str) -> Queue:
        r = self.random
        limit = r.choice([-1, -1, 100, 300])
        weight = (1.0, 1.0, float(r.choice([0, 1, 3])))
        quota = (-1, -1, r.choice([0, 100, 200, 400]))
        return Queue(name, parent, quota, (-1, -1, limit), weight, r.choice([100, 100, 200]), created=float(len(name)))

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now, tuple(self.nodes.values()), tuple(self.queues.values()), tuple(self.gangs.values()), self.promises
        )

    def leaves(self) -> list[str]:
        return [n for n, q in self.queues.items() if q.parent]

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        self.now += self.random.random() * 20
        act = self.random.choice(
            [self.submit, self.submit, self.submit, self.end, self.cordon, self.reshape, self.back]
        )
        act()

    def submit(self) -> None:
        r = self.random
        self.serial += 1
        name = f"g{self.serial:05}"
        count = r.choice([1, 1, 2, 3, 4])
        minimum = r.choice([count, count, max(1, count - 1)])
        priority = r.choice([50, 50, 75, 100])
        shape = r.choice(
            [
                Shape(cpu=1000, memory=GB),
                Shape(cpu=500, memory=GB, gpus=1),
                Shape(cpu=500, memory=GB, gpus=2),
                Shape(cpu=100, memory=GB, portion=r.choice([10, 30, 50]), devices=1),
                Shape(cpu=100, memory=GB, portion=50, devices=2),
                Shape(cpu=100, memory=GB, gpu_memory=300, devices=1),
            ]
        )
        tasks = tuple(Task(f"{name}-{i}", "t", f"{name}-{i}", shape, created=float(i)) for i in range(count))
        queue = r.choice(self.leaves())
        self.gangs[f"t/{name}"] = Gang(
            "t", name, name, queue, tasks, (PodSet("", minimum),), priority, priority < 100, self.now
        )

    def end(self) -> None:
        if self.gangs:
            del self.gangs[self.random.choice(sorted(self.gangs))]

    def cordon(self) -> None:
        name = self.random.choice(sorted(self.nodes))
        self.nodes[name] = replace(self.nodes[name], unschedulable=not self.nodes[name].unschedulable)

    def reshape(self) -> None:
        name = self.random.choice(self.leaves())
        old = self.queues[name]
        self.queues[name] = replace(self._queue(name, old.parent), created=old.created)

    def back(self) -> None:
        """Whatever is releasing has gone and is made again."""
        self._replace(
            lambda t: replace(t, status=Status.PENDING, node="", devices=()) if t.status == "Releasing" else t
        )

    def _replace(self, change: object) -> None:
        assert callable(change)
        self.gangs = {k: replace(g, tasks=tuple(change(t) for t in g.tasks)) for k, g in self.gangs.items()}

    def carry_out(self, found: Plan) -> None:
        places = {b.uid: b for b in found.binds}
        gone = {e.uid for e in found.evicts}
        self.promises = found.reservations

        def change(t: Task) -> Task:
            if t.uid in gone:
                return replace(t, status=Status.RELEASING)
            if t.uid in places:
                b = places[t.uid]
                return replace(t, status=Status.RUNNING, node=b.node, devices=b.devices)
            return t

        self._replace(change)


def check_cards(world: World) -> None:
    for s in world.order:
        assert all(0 <= u <= WHOLE for u in s.used), f"{s.node.name} cards {s.used}"
        assert s.cpu >= 0 and s.memory >= 0 and s.pods >= 0, s.node.name


def check_queues(before: World, after: World, touched: set[str]) -> None:
    """No bind may take a queue over a limit, or the non-preemptible over a quota, at any level."""
    for name, q in after.queues.items():
        old = before.queues[name]
        for r in range(3):
            grew = q.counted[r] > old.counted[r]
            if grew and q.queue.limit[r] != UNLIMITED:
                assert q.counted[r] <= q.queue.limit[r], f"{name} over its limit"
            if q.fixed[r] > old.fixed[r] and q.queue.quota[r] != UNLIMITED:
                assert q.fixed[r] <= q.queue.quota[r], f"{name} non-preemptible over quota"


def check_gangs(cluster: Cluster, found: Plan) -> None:
    started = {b.gang for b in found.binds}
    for key in started:
        gang = cluster.gangs[key]
        running = sum(t.status in (Status.RUNNING, Status.BOUND) for t in gang.tasks)
        assert running >= gang.pod_sets[0].minimum, f"{key} runs with {running}"
    for e in found.evicts:
        assert e.act == "stale" or e.by, f"{e.pod} was evicted for nobody"
        assert cluster.gangs[e.gang].preemptible or e.act == "stale"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_steps(seed: int) -> None:
    cluster = Cluster(random.Random(seed))
    cluster.build()
    for _ in range(max(1, STEPS // SEEDS)):
        cluster.step()
        snapshot = cluster.snapshot()
        before = build(snapshot)
        found = plan(snapshot)
        cluster.carry_out(found)
        after = build(cluster.snapshot())
        check_cards(after)
        check_queues(before, after, {b.gang for b in found.binds})
        check_gangs(cluster, found)


@pytest.mark.parametrize("seed", range(4))
def test_same_snapshot_same_plan(seed: int) -> None:
    cluster = Cluster(random.Random(1000 + seed))
    cluster.build()
    for _ in range(30):
        cluster.step()
        snapshot = cluster.snapshot()
        found = plan(snapshot)
        assert plan(loads(dumps(snapshot))) == found
        planner = Planner(build(snapshot))
        planner.cycle()
        assert planner.cycle() == found, "a cycle leaves no trace in the world"
        cluster.carry_out(found)


@pytest.mark.parametrize("seed", range(6))
def test_calm_comes_to_rest(seed: int) -> None:
    """Without new events the plan becomes empty: nobody is evicted back and forth for ever."""
    cluster = Cluster(random.Random(2000 + seed))
    cluster.build()
    for _ in range(40):
        cluster.submit()
    for _ in range(60):
        found = plan(cluster.snapshot())
        if not found.binds and not found.evicts:
            break
        cluster.carry_out(found)
        cluster.back()
    assert not found.binds and not found.evicts
