"""The planner alone, in the shapes that KAI publishes: no API, no store, one core.

    python benchmarks/planner.py [--nodes 500] [--json]

Prints one line per shape: CPU seconds (the planner uses one core and waits for nobody, so on a quiet machine they are
the wall's), the target, and what was decided; then how the cost of a cycle grows from 100 to 5,000 nodes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Shape, Snapshot, Status, Task
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner

GB = 10**9
ONE = Shape(cpu=100, memory=GB, gpus=1)
NEVER = replace(ONE, gpus=8, selector=(("nowhere", "true"),))


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    seconds: float
    target: float
    result: str

    def __str__(self) -> str:
        verdict = "ok" if self.seconds <= self.target else "SLOW"
        return f"{self.name:<58} {self.seconds * 1000:9.1f} ms   target {self.target * 1000:7.0f} ms  {verdict:4}  {self.result}"


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(f"node-{i:05}", cpu=128_000, memory=1024 * GB, gpus=8, gpu_memory=81_500) for i in range(count))


def tree(queues: int, quota: int) -> tuple[Queue, ...]:
    departments = tuple(
        Queue(f"department-{d}", quota=(-1, -1, -1), created=float(d)) for d in range(max(1, queues // 10))
    )
    leaves = tuple(
        Queue(f"q{i:03}", departments[i % len(departments)].name, (-1, -1, quota), created=100.0 + i)
        for i in range(queues)
    )
    return departments + leaves


def gang(
    name: str, queue: str, count: int, shape: Shape = ONE, *, created: float = 0.0, status: Status = Status.PENDING
) -> Gang:
    tasks = tuple(Task(f"{name}-{i}", "ns", f"{name}-{i}", shape, status) for i in range(count))
    return Gang("ns", name, name, queue, tasks, (PodSet("", count),), created=created, bare=count == 1)


def running(name: str, queue: str, node: str, card: int, created: float) -> Gang:
    task = Task(name, "ns", name, ONE, Status.RUNNING, node=node, devices=(card,))
    return Gang("ns", name, name, queue, (task,), created=created, bare=True, started=created)


def full(count: int, queue: str) -> Iterator[Gang]:
    """Every card of the cluster held by a single-GPU job of one queue."""
    for i in range(count * 8):
        yield running(f"run-{i:06}", queue, f"node-{i // 8:05}", i % 8, float(i))


def timed(act: Callable[[], Plan]) -> tuple[float, Plan]:
    start = time.process_time()
    result = act()
    return time.process_time() - start, result


def counts(plan: Plan) -> str:
    return f"{len(plan.binds)} binds, {len(plan.evictions)} evictions, {len(plan.holds)} holds"


def once(name: str, target: float, snapshot: Snapshot) -> Line:
    """From a snapshot to a plan, everything built anew."""
    seconds, plan = timed(lambda: Planner(open_session(snapshot)).run_cycle())
    return Line(name, seconds, target, counts(plan))


def shapes(count: int) -> Iterator[Line]:
    two = tree(2, count * 4 * 100)
    gpus = count * 8
    fill = tuple(gang(f"p{i:05}", "q000", 1, created=float(i)) for i in range(gpus))
    yield once(f"fill {gpus} single-GPU pods, {count}x8", 5.0, Snapshot(0.0, nodes(count), two, fill))
    yield once("one gang of 512 pods", 1.0, Snapshot(0.0, nodes(count), two, (gang("big", "q000", 512),)))
    crowd = tuple(full(count, "q000"))
    asker = gang("asker", "q001", 250, created=1e6)
    yield once("reclaim 250 single-GPU jobs for a gang of 250", 5.0, Snapshot(2e6, nodes(count), two, (*crowd, asker)))
    wide = gang("asker", "q001", 250, replace(ONE, gpus=8), created=1e6)
    quota = tuple(replace(q, quota=(-1, -1, gpus * 100)) if q.name == "q001" else q for q in two)
    yield once("reclaim 2000 GPUs for a gang of 250 x 8", 10.0, Snapshot(2e6, nodes(count), quota, (*crowd, wide)))
    same = gang("wide", "q000", 10, replace(ONE, gpus=8), created=1e6)
    yield once("verdict: 10x8 gang, same queue, full cluster", 0.5, Snapshot(2e6, nodes(count), two, (*crowd, same)))
    entitled = gang("wide", "q001", 10, replace(ONE, gpus=8), created=1e6)
    last = replace(entitled.tasks[-1], shape=NEVER)
    hopeless = replace(entitled, tasks=(*entitled.tasks[:-1], last))
    yield once(
        "verdict: 10x8 gang, entitled, last pod fits nowhere", 0.5, Snapshot(2e6, nodes(count), two, (*crowd, hopeless))
    )


def small_change(count: int, queues: int, pending: int) -> Iterator[Line]:
    """A full cluster with many waiting; one pod ends, one gang comes, and nothing at all."""
    crowd = [
        running(f"run-{i:06}", f"q{i % queues:03}", f"node-{i // 8:05}", i % 8, float(i)) for i in range(count * 8)
    ]
    queue = [gang(f"wait-{i:06}", f"q{i % queues:03}", 1, created=1e6 + i) for i in range(pending)]
    snapshot = Snapshot(2e6, nodes(count), tree(queues, count * 8 * 100 // queues), (*crowd, *queue))
    seconds, planner = timed_build(snapshot)
    yield Line(f"build {count} nodes, {pending} pending, {queues} queues", seconds, 5.0, "")
    seconds, plan = timed(lambda: turn(planner))
    yield Line("first cycle", seconds, 5.0, counts(plan))
    seconds, plan = timed(lambda: turn(planner))
    yield Line("a cycle in which nothing can be done", seconds, 0.05, counts(plan))

    def pod_ends() -> Plan:
        planner.session.drop_gang(crowd[17].key)
        planner.pending_gangs.drop_gang(crowd[17].key)
        return turn(planner)

    seconds, plan = timed(pod_ends)
    yield Line("one pod ends", seconds, 0.02, counts(plan))

    def gang_comes() -> Plan:
        planner.pending_gangs.put_gang(planner.session.put_gang(gang("new", "q003", 4, created=1e7)))
        return turn(planner)

    seconds, plan = timed(gang_comes)
    yield Line("one gang comes", seconds, 0.02, counts(plan))


def turn(planner: Planner) -> Plan:
    """As the controller does it: the first of each group of equals is explained, the others later."""
    plan = planner.run_cycle(keep_plan=True)
    for _ in planner.head_holds():
        pass
    planner.reset()
    return plan


def timed_build(snapshot: Snapshot) -> tuple[float, Planner]:
    start = time.process_time()
    planner = Planner(open_session(snapshot))
    return time.process_time() - start, planner


def growth(sizes: Sequence[int]) -> Iterator[Line]:
    """Half-full clusters of different sizes: a cycle with nothing to do, one new gang of 16, one pod that ends."""
    for count in sizes:
        crowd = tuple(g for i, g in enumerate(full(count, "q000")) if i % 8 < 4)
        seconds, planner = timed_build(Snapshot(2e6, nodes(count), tree(2, count * 4 * 100), crowd))
        turn(planner)
        yield Line(f"build {count} nodes half full", seconds, 5.0, "")
        seconds, plan = timed(lambda planner=planner: turn(planner))  # type: ignore[misc]  # bound at once
        yield Line(f"  idle cycle, {count} nodes", seconds, 0.02, counts(plan))
        planner.pending_gangs.put_gang(planner.session.put_gang(gang("new", "q001", 16, created=1e7)))
        seconds, plan = timed(lambda planner=planner: turn(planner))  # type: ignore[misc]  # bound at once
        yield Line(f"  a gang of 16 comes, {count} nodes", seconds, 0.02 if count <= 1000 else 0.1, counts(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = [*shapes(options.nodes), *small_change(options.nodes * 2, 100, 10_000), *growth((100, 500, 1000, 5000))]
    for line in lines:
        print(json.dumps({"name": line.name, "seconds": line.seconds, "target": line.target}) if options.json else line)


if __name__ == "__main__":
    main()
