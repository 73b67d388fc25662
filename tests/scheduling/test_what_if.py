"""The scheduler on a copy: what would become of a gang that nobody has submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowlock.scheduling.explain.quota_what_if import try_quotas
from rowlock.scheduling.explain.what_if import STARTS, STARTS_AFTER, WAITS, DryRunOutcome, DryRunPlanner
from rowlock.scheduling.model.resources import UNLIMITED
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Shape, Snapshot, Status, Taint, Task, dumps

GB = 10**9


def gang(name: str, pods: int, gpus: int = 1, *, queue: str = "a", on: str = "", **more: object) -> Gang:
    shape = Shape(cpu=100, memory=GB, gpus=gpus)
    status = Status.RUNNING if on else Status.PENDING
    tasks = tuple(
        Task(f"{name}-{i}", "t", f"{name}-{i}", shape, status, node=on, devices=(i,) if on else ()) for i in range(pods)
    )
    made = Gang("t", name, name, queue, tasks, (PodSet("", pods),), created=5000.0)
    return replace(made, started=1.0 if on else 0.0, **more)  # type: ignore[arg-type]  # fields of Gang


def cluster(*gangs: Gang, nodes: int = 2, gpus: int = 4) -> Snapshot:
    machines = tuple(Node(f"n{i}", cpu=64000, memory=64 * GB, gpus=gpus) for i in range(nodes))
    queues = tuple(Queue(q, quota=(-1, -1, nodes * gpus * 50), created=float(i)) for i, q in enumerate("ab"))
    return Snapshot(6000.0, machines, queues, gangs)


def ask(snapshot: Snapshot, *gangs: Gang) -> list[DryRunOutcome]:
    return DryRunPlanner(snapshot).dry_run(gangs)


def test_it_would_start_and_the_nodes_are_named() -> None:
    (found,) = ask(cluster(), gang("new", 6))
    assert found.verdict == STARTS
    assert found.message == "t/new would start now: 6 pods on nodes n0 (4), n1 (2)."
    assert len(found.places) == 6 and found.places[0] == ("new-0", "n0", (0,))


def test_it_would_wait_and_what_would_start_was_tried() -> None:
    (found,) = ask(cluster(), gang("new", 9))
    assert found.verdict == WAITS and "8 of 9 pods fit" in found.message
    assert found.changes == ("ask for 8 pods instead of 9",)
    assert ask(cluster(), gang("new", 8))[0].verdict == STARTS


def test_too_large_a_pod_is_told_the_size_that_fits() -> None:
    (found,) = ask(cluster(), gang("new", 1, 6))
    assert found.verdict == WAITS and "NoNodeLargeEnough" in found.message
    assert found.changes == ("ask for 4 GPUs per pod",)


def test_who_would_have_to_yield_goes_by_the_name_of_its_job() -> None:
    """People do not know the names of PodGroups."""
    owner = ("kubeflow.org/v1", "PyTorchJob", "train", "u")
    running = [gang(f"pg-train-{i}", 4, on=f"n{i}", queue="a", owner=owner) for i in range(2)]
    (found,) = ask(cluster(*running), gang("new", 4, queue="b"))
    assert "For it 4 pods of t/train would be evicted (reclaim)." in found.message


@pytest.mark.parametrize(
    ("held", "preemptible", "hint"),
    [
        (2, True, "ask for 2 GPUs or less, wait for others of a, or raise its limit"),
        (4, True, "wait for others of a, or raise its limit"),
        (2, False, "submit it as preemptible, or ask for 2 GPUs"),
        (4, False, "submit it as preemptible, or wait for others of a"),
    ],
)
def test_nobody_is_told_to_ask_for_nothing(held: int, preemptible: bool, hint: str) -> None:
    bound = (UNLIMITED, UNLIMITED, 400)
    snapshot = cluster(gang("old", held, on="n0", preemptible=preemptible), nodes=2)
    queue = Queue("a", limit=bound) if preemptible else Queue("a", quota=bound)
    (found,) = ask(replace(snapshot, queues=(queue,)), gang("new", 1, 3, preemptible=preemptible))
    assert found.record["hint"] == hint


def test_who_would_have_to_yield() -> None:
    running = [gang(f"old{i}", 4, on=f"n{i}", queue="a") for i in range(2)]
    (found,) = ask(cluster(*running), gang("new", 4, queue="b"))
    assert found.verdict == STARTS_AFTER
    assert found.message.startswith("t/new would start when resources are free: 4 pods on node n")
    assert "For it 4 pods of t/old1 would be evicted (reclaim)." in found.message
    assert {e.gang for e in found.evicted} == {"t/old1"}


def test_not_preemptible_beyond_the_quota() -> None:
    (found,) = ask(cluster(), gang("new", 5, preemptible=False, priority=100))
    assert found.verdict == WAITS and "NonPreemptibleOverQuota" in found.message
    assert found.changes[0].startswith("submit it as preemptible") and "ask for 4 pods instead of 5" in found.changes


@pytest.mark.parametrize(("quota", "hint"), [
    (100, "wait for pods to finish, or raise the quota"),
    (UNLIMITED, "wait for pods to finish"),
])  # fmt: skip
def test_a_quota_that_is_unlimited_is_not_to_be_raised(quota: int, hint: str) -> None:
    running = [gang(f"old{i}", 4, on=f"n{i}", queue="a") for i in range(2)]
    whole = cluster(*running)
    queues = (replace(whole.queues[0], quota=(-1, -1, quota)), whole.queues[1])
    (found,) = ask(replace(whole, queues=queues), gang("new", 1))
    assert found.message.startswith("t/new would wait: FairShareExhausted: a uses 8 GPUs"), found.message
    assert found.record is not None and found.record["hint"] == hint


def test_a_missing_queue_has_no_remedy_but_the_queue() -> None:
    (found,) = ask(cluster(), gang("new", 1, queue="nowhere"))
    assert found.verdict == WAITS and found.message == (
        "t/new would wait: QueueDoesNotExist: Queue 'nowhere' does not exist."
    )
    assert found.changes == ()


def test_two_at_once_share_the_room() -> None:
    one, two = ask(cluster(), gang("one", 6), gang("two", 6, created=5001.0))
    assert (one.verdict, two.verdict) == (STARTS, WAITS)


def test_asking_leaves_no_trace() -> None:
    rehearsal = DryRunPlanner(cluster(gang("old", 3, on="n0")))
    first = rehearsal.dry_run([gang("new", 9)])
    assert rehearsal.dry_run([gang("other", 5)])[0].verdict == STARTS
    assert rehearsal.dry_run([gang("new", 9)]) == first
    assert rehearsal.planner.run_cycle().decisions == ()


def test_a_node_that_is_cordoned_is_the_hint_where_it_alone_would_do() -> None:
    def hint(asked: Gang, *nodes: Node) -> str:
        (found,) = ask(replace(cluster(), nodes=nodes), asked)
        assert found.verdict == WAITS
        return str(found.record["hint"])

    small, big = Node("n1", cpu=64000, memory=64 * GB, gpus=4), Node("big", cpu=64000, memory=64 * GB, gpus=8)
    cordoned, away = replace(big, unschedulable=True), replace(big, ready=False)
    opens = "open node big, which is cordoned (`kubectl uncordon big`)"
    assert hint(gang("new", 1, 6), small, cordoned) == f"ask for less per pod, or {opens}"
    assert hint(gang("new", 1, 6), cordoned) == opens
    assert "big" not in hint(gang("new", 1, 6), small, replace(cordoned, retired=True))
    assert hint(gang("new", 1, 6), small, away).endswith("or open node big, which is not ready (its kubelet is silent)")
    unreachable = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")
    assert (
        hint(gang("new", 1, 6), replace(away, taints=(unreachable,)))
        == "open node big, which is not ready (its kubelet is silent)"
    )
    tainted = replace(away, taints=(unreachable, Taint("example.com/only", "", "NoSchedule")))
    assert "big" not in hint(gang("new", 1, 6), tainted), "it would not take the pod if it were ready"
    assert hint(gang("new", 1, 9), small, cordoned) == "ask for less per pod", "it could not hold it either"
    assert hint(gang("new", 3, 4), small, cordoned) == f"ask for 4 GPUs or less in all, or {opens}"
    on_cpu = gang("new", 1, 0)
    tasks = tuple(replace(t, shape=replace(t.shape, cpu=65000)) for t in on_cpu.tasks)
    large = replace(cordoned, cpu=99000)
    assert hint(replace(on_cpu, tasks=tasks), small, large) == f"ask for less per pod, or {opens}"


def test_a_larger_quota_takes_back_what_others_hold_beyond_theirs() -> None:
    running = [gang(f"old{i}", 4, on=f"n{i}", queue="a") for i in range(2)]
    world = cluster(*running, gang("new", 4, queue="b"))
    world = replace(world, queues=tuple(replace(q, quota=(-1, -1, {"a": 800, "b": 0}[q.name])) for q in world.queues))
    before = dumps(world)
    assert try_quotas(world, {}).starts_after == ()
    found = try_quotas(world, {"a": 400, "b": 400})
    assert [one.name for one in found.starts_after] == ["new"] and not found.starts
    ((yielding),) = found.yields
    assert (yielding.gang.name in ("old0", "old1"), yielding.pods, yielding.action) == (True, 4, "reclaim")
    assert dict(found.fair_shares or {}) == {"a": 400, "b": 400}
    assert dumps(world) == before, "a question changes nothing"


def test_what_starts_anyway_is_not_told() -> None:
    world = cluster(gang("fits", 2, queue="a"))
    found = try_quotas(world, {"a": 800, "b": 0})
    assert (found.starts, found.starts_after, found.waits, found.yields) == ((), (), (), ())


def test_what_would_no_longer_start_is_told() -> None:
    """A non-preemptible gang needs its quota."""
    world = cluster(gang("firm", 4, queue="a", preemptible=False))
    assert [one.name for one in try_quotas(world, {"a": 200}).waits] == ["firm"]
