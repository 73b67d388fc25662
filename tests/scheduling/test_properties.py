"""Random clusters, step by step: what must hold after every cycle, whatever happens.

Steps: gangs come and go, pods end, nodes are cordoned, vanish and come back, quotas change, evicted pods come back.
ROWLOCK_STEPS sets how many steps run in all: 100,000 in `make property`, the invariants of scenario 72.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from rowlock.scheduling.model.resources import UNLIMITED, WHOLE_GPU
from rowlock.scheduling.model.session import Session, open_session
from rowlock.scheduling.model.snapshot import (
    Gang,
    Node,
    NodeReservation,
    PipelinedGang,
    PodSet,
    Queue,
    SchedulerSettings,
    Shape,
    Snapshot,
    Status,
    Task,
    dumps,
    loads,
)
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner, plan

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
    promises: tuple[PipelinedGang, ...] = ()
    earmarks: tuple[NodeReservation, ...] = ()
    lost: tuple[tuple[str, float], ...] = ()
    away: dict[str, Node] = field(default_factory=dict)
    serial: int = 0

    def build(self) -> None:
        r = self.random
        for i in range(r.randint(1, 4)):
            labels = (("rack", r.choice("ab")),)
            self.nodes[f"n{i}"] = Node(
                f"n{i}", r.choice([8000, 64000]), 64 * GB, r.choice([0, 1, 2, 4]), 1000, labels=labels
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
        young = r.choice([None, None, None, 30.0])
        rank = r.choice([100, 100, 200])
        return Queue(name, parent, quota, (-1, -1, limit), weight, rank, float(len(name)), reclaim_min_runtime=young)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now, tuple(self.nodes.values()), tuple(self.queues.values()), tuple(self.gangs.values()), self.promises,
            SchedulerSettings(reserve_after=60.0), self.earmarks, self.lost,
        )  # fmt: skip

    def leaves(self) -> list[str]:
        return [n for n, q in self.queues.items() if q.parent]

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        self.now += self.random.random() * 20
        act = self.random.choice(
            [self.submit, self.submit, self.submit, self.end, self.cordon, self.reshape, self.back, self.vanish]
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
            "t", name, name, queue, tasks, (PodSet("", minimum),), priority, priority < 100, self.now,
            lasts=r.choice([0.0, 0.0, 100.0]), required=r.choice(["", "", "", "rack"]),
            preferred=r.choice(["", "", "rack"]),
        )  # fmt: skip

    def end(self) -> None:
        if self.gangs:
            del self.gangs[self.random.choice(sorted(self.gangs))]

    def cordon(self) -> None:
        name = self.random.choice(sorted(self.nodes))
        self.nodes[name] = replace(self.nodes[name], unschedulable=not self.nodes[name].unschedulable)

    def vanish(self) -> None:
        """A node goes away, or one that was away comes back."""
        if self.away:
            name, node = self.away.popitem()
            self.nodes[name] = node
        elif len(self.nodes) > 1:
            name = self.random.choice(sorted(self.nodes))
            self.away[name] = self.nodes.pop(name)

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

    def carry_out(self, found: Plan, lost: dict[str, float] | None = None) -> None:
        places = {b.uid: b for b in found.binds}
        gone = {e.uid for e in found.evictions}
        self.promises, self.earmarks, self.lost = (
            found.reservations,
            found.node_reservations,
            tuple((lost or {}).items()),
        )

        def change(t: Task) -> Task:
            if t.uid in gone:
                return replace(t, status=Status.RELEASING)
            if t.uid in places:
                b = places[t.uid]
                return replace(t, status=Status.RUNNING, node=b.node, devices=b.devices)
            return t

        self._replace(change)
        for key in {b.gang for b in found.binds}:
            self.gangs[key] = replace(self.gangs[key], started=self.now)


def check_cards(world: Session) -> None:
    for s in world.ordered_nodes:
        assert all(0 <= u <= WHOLE_GPU for u in s.used_per_device), f"{s.node.name} cards {s.used_per_device}"
        assert s.idle_cpu >= 0 and s.idle_memory >= 0 and s.idle_pods >= 0, s.node.name


def check_queues(before: Session, after: Session) -> None:
    """No bind may take a queue over a limit, or the non-preemptible over a quota, at any level."""
    for name, q in after.queues.items():
        old = before.queues[name]
        for r in range(3):
            grew = q.allocated[r] > old.allocated[r]
            if grew and q.queue.limit[r] != UNLIMITED:
                assert q.allocated[r] <= q.queue.limit[r], f"{name} over its limit"
            if q.allocated_non_preemptible[r] > old.allocated_non_preemptible[r] and q.queue.quota[r] != UNLIMITED:
                assert q.allocated_non_preemptible[r] <= q.queue.quota[r], f"{name} non-preemptible over quota"


def check_gangs(cluster: Cluster, found: Plan) -> None:
    started, moved = {b.gang for b in found.binds}, Counter(e.gang for e in found.evictions if e.moves_to)
    for key in started:
        gang = cluster.gangs[key]
        there = running(gang) + moved[key]
        assert there >= gang.pod_sets[0].minimum, f"{key} runs with {there}"
    gain = started | {r.gang for r in found.reservations}
    for e in found.evictions:
        assert e.action in ("stale", "lost") or e.preemptor in gain, (
            f"{e.pod} was evicted for nobody ({e.action} for {e.preemptor})"
        )
        assert cluster.gangs[e.gang].preemptible or e.action in ("stale", "lost")


def running(gang: Gang) -> int:
    return sum(t.status in (Status.RUNNING, Status.BOUND) for t in gang.tasks)


def check_whole(before: dict[str, Gang], after: dict[str, Gang], found: Plan) -> None:
    """A gang that ran whole, or not at all, does not run in part after a cycle: half a gang is nobody's plan. Pods that
    are moved have their place promised, all of them."""
    promised = {r.gang: len(r.nodes) for r in found.reservations}
    for key, gang in after.items():
        minimum = gang.pod_sets[0].minimum
        if 0 < running(gang) < minimum and running(gang) + promised.get(key, 0) < minimum:
            assert 0 < running(before[key]) < minimum, f"{key} runs with {running(gang)} of {minimum}"


def check_racks(cluster: Cluster, found: Plan) -> None:
    """Who must share a rack does."""
    for key in {b.gang for b in found.binds}:
        gang = cluster.gangs[key]
        if gang.required:
            nodes = cluster.nodes | cluster.away  # a node may be missed for a while
            racks = {dict(nodes[t.node].labels)["rack"] for t in gang.tasks if t.status is Status.RUNNING}
            assert len(racks) == 1, f"{key} runs in {racks}"


def check_shares(planner: Planner, found: Plan) -> None:
    """With the plan in the world: who took back from others holds no more than its queue's fair share. What others of the
    queue were promised beside it does not count: a later act may have given them cards that are idle or coming back."""
    world = planner.session
    later = {id(world.gangs[by].queue) for act, by in planner.eviction_causes.values() if act in ("preempt", "reserve")}
    takers = {e.preemptor for e in found.evictions if e.action == "reclaim"}
    for key in takers:
        queue = world.gangs[key].queue
        assert queue is not None
        if id(queue) in later:
            continue
        others = [g for g in queue.gangs.values() if g.gang.key not in takers]
        beside = world.total_cost(t for g in others for t in g.tasks if t.status is Status.PIPELINED)
        kept = zip(queue.allocated, beside, queue.fair_share, strict=True)
        assert all(c - b <= f for c, b, f in kept), f"{queue.queue.name} took too much"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_steps(seed: int) -> None:
    walk(seed, max(1, STEPS // SEEDS))


@pytest.mark.parametrize(
    ("seed", "steps", "what"),
    [
        (27, 156, "a pod that was counted as gone, but not evicted"),
        (7, 110, "reclaim left a gang with less than its minimum"),
        (9, 200, "a gang was moved off a node that had vanished, in the cycle that gave the node up"),
        (63, 200, "a gang of one rack grew into another one while its node was missing"),
    ],
    ids=["lost pod", "half a gang", "moved off a lost node", "grown without its node"],
)
def test_histories_that_found_a_fault(seed: int, steps: int, what: str) -> None:
    walk(seed, steps)


def walk(seed: int, steps: int) -> None:
    """One random history; every cycle is checked."""
    cluster = Cluster(random.Random(seed))
    cluster.build()
    for _ in range(steps):
        cluster.step()
        snapshot = cluster.snapshot()
        before, gangs = open_session(snapshot), dict(cluster.gangs)
        planner = Planner(open_session(snapshot))
        found = planner.run_cycle(keep_plan=True)
        check_shares(planner, found)
        planner.reset()
        cluster.carry_out(found, planner.session.lost_nodes)
        after = open_session(cluster.snapshot())
        check_cards(after)
        check_queues(before, after)
        check_gangs(cluster, found)
        check_whole(gangs, cluster.gangs, found)
        check_racks(cluster, found)


@pytest.mark.parametrize("seed", range(4))
def test_same_snapshot_same_plan(seed: int) -> None:
    cluster = Cluster(random.Random(1000 + seed))
    cluster.build()
    for _ in range(30):
        cluster.step()
        snapshot = cluster.snapshot()
        found = plan(snapshot)
        assert plan(loads(dumps(snapshot))) == found
        planner = Planner(open_session(snapshot))
        planner.run_cycle()
        assert planner.run_cycle() == found, "a cycle leaves no trace in the world"
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
        if not found.binds and not found.evictions:
            break
        cluster.carry_out(found)
        cluster.back()
    assert not found.binds and not found.evictions
