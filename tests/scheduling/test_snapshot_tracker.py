"""The planner's world follows the view for a price that does not grow with the cluster."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.scheduling.cluster import Bench

from rowlock.api import Bind, Change, Delete
from rowlock.kinds import NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, POD_GROUP, QUEUE
from rowlock.objects import Key, revision, with_field
from rowlock.scheduling import snapshot_tracker
from rowlock.scheduling.controller import SCHEDULER_KEY, Scheduler
from rowlock.scheduling.model.from_objects import NAMESPACE_QUEUE_LABEL
from rowlock.scheduling.model.scheduler_identity import CLUSTER_SCHEDULER_NAME, REAL_CLUSTER
from rowlock.scheduling.snapshot_tracker import SnapshotTracker
from rowlock.scheduling.volume_topology import STORAGE_CLASS


class Unsearchable(dict[Any, Any]):
    """A table that may be asked for a key, but not be walked through."""

    def items(self) -> Any:
        raise AssertionError("every PodGroup walks through all of them: ten thousand jobs are a hundred million steps")

    __iter__ = items


def group(name: str, owner: str) -> dict[str, Any]:
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": owner, "uid": f"uid-{owner}", "controller": True}  # fmt: skip
    return {"metadata": {"namespace": "a", "name": name, "ownerReferences": [reference]}, "spec": {}}


def test_a_pod_group_is_followed_without_looking_at_the_others() -> None:
    tracker = SnapshotTracker()
    tracker.group_of_owner = Unsearchable()
    for n in range(50):
        tracker._apply_group(Key("a", f"g{n}"), group(f"g{n}", f"j{n}"), {})
    assert tracker.group_of_owner[("a", "uid-j7")] == "g7"
    tracker._apply_group(Key("a", "g7"), group("g7", "other"), {})
    assert ("a", "uid-j7") not in tracker.group_of_owner and tracker.group_of_owner[("a", "uid-other")] == "g7"
    tracker._apply_group(Key("a", "g8"), group("g8", "other"), {})
    tracker._apply_group(Key("a", "g7"), None, {})
    assert tracker.group_of_owner[("a", "uid-other")] == "g8", "another group's claim stays"


def test_a_large_state_is_taken_in_by_slices_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.node("n1", 8)
    bench.queue("default")
    for number in range(6):
        bench.gang(f"j{number}", 3)
        bench.pod(f"p{number}")
    changes = [
        Change("Added", revision(obj), kind, obj)
        for kind in (POD, NODE, QUEUE, POD_GROUP)
        for obj in bench.all(kind).values()
    ]  # pods before their groups: the other way round nothing could go wrong
    snapshots = []
    for slice_size in (1000, 5, 1):
        monkeypatch.setattr(snapshot_tracker, "ABSORBED_CHANGES", slice_size)
        scheduler = Scheduler()
        for change in changes:
            scheduler.keys(bench.store.view, change)
        assert len(scheduler.tracker.changed_keys) == (
            len(changes) if slice_size == 1000 else len(changes) % slice_size
        )
        assert scheduler.has_unplanned_changes == (slice_size != 1000)
        snapshots.append(scheduler.snapshot(bench.store.view, bench.now))
        assert scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now).writes, (
            "what was taken in was never planned"
        )
    by_key = [({gang.key: gang for gang in snapshot.gangs}, snapshot.nodes) for snapshot in snapshots]
    assert by_key[0] == by_key[1] == by_key[2] and len(by_key[0][0]) == 12


def test_one_gang_that_changes_often_is_read_once_for_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_tracker, "ABSORBED_CHANGES", 4)
    bench = Bench()
    bench.node("n1", 8)
    bench.queue("default")
    bench.gang("j", 8)
    read: list[str] = []
    read_gang = SnapshotTracker._read_gang

    def note(self: SnapshotTracker, view: Any, gang_key: str, classes: dict[str, int]) -> Any:
        read.append(gang_key)
        return read_gang(self, view, gang_key, classes)

    monkeypatch.setattr(SnapshotTracker, "_read_gang", note)
    scheduler = Scheduler()
    for kind in (POD_GROUP, POD):
        for obj in bench.all(kind).values():
            scheduler.keys(bench.store.view, Change("Added", revision(obj), kind, obj))
    assert not read
    scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now)
    assert len(read) == 1


def test_a_namespace_that_changes_costs_the_gangs_in_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of one says which queue its pods are of; there may be a thousand gangs in others."""
    bench = Bench()
    bench.node("n1", 8)
    bench.queue("default")
    for number in range(6):
        bench.pod(f"p{number}")
    scheduler = Scheduler()
    scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now)
    read: list[str] = []
    read_gang = SnapshotTracker._read_gang

    def count_reads(self: SnapshotTracker, view: Any, gang: str, classes: dict[str, int]) -> Any:
        read.append(gang)
        return read_gang(self, view, gang, classes)

    monkeypatch.setattr(SnapshotTracker, "_read_gang", count_reads)
    here = bench.all(NAMESPACE)["t"]
    bench.store.core.update(NAMESPACE, with_field(here, "metadata.labels", {"kai.scheduler/queue": "default"}), "")
    bench.store.commit()
    for changed, gangs in ((bench.put(NAMESPACE, "", "elsewhere"), 0), (bench.all(NAMESPACE)["t"], 6)):
        read.clear()
        scheduler.keys(bench.store.view, Change("Modified", revision(changed), NAMESPACE, changed))
        scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now)
        assert len(read) == gangs, changed["metadata"]["name"]


def test_a_change_that_concerns_all_gangs_is_taken_in_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of a namespace with 2,600 pods held the event loop for 170 ms, and each restart did."""
    monkeypatch.setattr(snapshot_tracker, "GANGS_PER_SLICE", 4)
    bench, scheduler = Bench(), Scheduler()
    bench.node("n1", 16)
    bench.queue("default")
    for number in range(10):
        bench.pod(f"p{number}")

    def decide_until_planned() -> int:
        decisions = 0
        while not decisions or scheduler.tracker.outdated_gangs:
            before = scheduler.cycles
            decision = scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now)
            decisions += 1
            waits = bool(scheduler.tracker.outdated_gangs)
            assert (
                (decision.requeue_after == 0.0 and scheduler.cycles == before) if waits else scheduler.cycles > before
            )
        return decisions

    assert decide_until_planned() == 3
    here = bench.all(NAMESPACE)["t"]
    bench.store.core.update(NAMESPACE, with_field(here, "metadata.labels", {NAMESPACE_QUEUE_LABEL: "other"}), "")
    bench.store.commit()
    here = bench.all(NAMESPACE)["t"]
    scheduler.keys(bench.store.view, Change("Modified", revision(here), NAMESPACE, here))
    assert decide_until_planned() == 3
    assert {gang.gang.queue for gang in scheduler.tracker.planner.session.gangs.values()} == {"other"}


def test_a_storage_class_that_changes_is_read_by_every_pod_with_a_claim() -> None:
    bench = Bench(scheduler=Scheduler(identity=REAL_CLUSTER))
    bench.node("n1", 8)
    bench.queue("default")
    for mode, waits in (("Immediate", True), ("WaitForFirstConsumer", False)):
        bench.put(STORAGE_CLASS, "", mode, volumeBindingMode=mode)
        bench.put(PERSISTENT_VOLUME_CLAIM, "t", mode.lower(), spec={"storageClassName": mode})
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": mode.lower()}}]
        bench.pod(mode.lower(), spec={"schedulerName": CLUSTER_SCHEDULER_NAME, "volumes": volumes})
        shape = bench.scheduler.snapshot(bench.store.view, bench.now).gangs[-1].tasks[0].shape
        assert bool(shape.waits) == waits
    bench.store.core.update(
        STORAGE_CLASS, {**bench.all(STORAGE_CLASS)["Immediate"], "volumeBindingMode": "WaitForFirstConsumer"}, ""
    )
    bench.store.commit()
    gangs = bench.scheduler.snapshot(bench.store.view, bench.now).gangs
    assert len(gangs) == 2 and not any(gang.tasks[0].shape.waits for gang in gangs)


PLANNED = (Bind, Delete)
"""The writes whose order counts."""


class Impatient:
    """A stopwatch that says at random looks, of a seed, that the slice is over."""

    def __init__(self, seed: int) -> None:
        self._random, self._seconds = random.Random(seed), 0.0

    def __call__(self) -> float:
        self._seconds += self._random.choice((0.0, 0.0, 0.0, 1.0))
        return self._seconds


def a_change(bench: Bench, chance: random.Random, number: int) -> None:
    """One of what people and controllers do to a cluster."""
    match chance.randrange(8):
        case 0 | 1:
            bench.gang(f"j{number}", chance.randint(1, 4), gpus=chance.randint(0, 2))
        case 2:
            bench.pod(f"p{number}", chance.randint(0, 3), spec={"schedulerName": CLUSTER_SCHEDULER_NAME})
        case 3:
            bench.put(PERSISTENT_VOLUME_CLAIM, "t", f"c{number}", spec={"storageClassName": "late"})
            volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}]
            bench.pod(f"p{number}", 1, spec={"schedulerName": CLUSTER_SCHEDULER_NAME, "volumes": volumes})
        case 4:
            bench.node(f"more-{number}", chance.randint(1, 8))
        case 5:
            name = "other" if "other" not in bench.all(QUEUE) else f"more-{number}"
            bench.queue(name, chance.randint(0, 4))
        case 6:
            here = bench.all(NAMESPACE)["t"]
            label = {NAMESPACE_QUEUE_LABEL: chance.choice(("default", "other"))}
            bench.store.core.update(NAMESPACE, with_field(here, "metadata.labels", label), "")
        case _:
            mode = chance.choice(("Immediate", "WaitForFirstConsumer"))
            known = bench.all(STORAGE_CLASS)["late"]
            bench.store.core.update(STORAGE_CLASS, {**known, "volumeBindingMode": mode}, "")
    bench.store.commit()


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_same_wherever_slices_end(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Two schedulers look at one cluster; one of them is interrupted at random. What they bind and evict is equal, in the same order."""
    monkeypatch.setattr(snapshot_tracker, "ABSORBED_CHANGES", 3)
    chance, bench, slices = random.Random(seed), Bench(Scheduler(identity=REAL_CLUSTER)), 0
    hurried = Scheduler(identity=REAL_CLUSTER, stopwatch=Impatient(seed))
    bench.queue("default")
    bench.node("n0", 8)
    bench.put(STORAGE_CLASS, "", "late", volumeBindingMode="WaitForFirstConsumer")
    for step in range(20):
        for number in range(chance.randint(1, 6)):
            a_change(bench, chance, 10 * step + number)
        bench.now += chance.choice((0.1, 3.0, 40.0))
        decision = hurried.decide(bench.store.view, SCHEDULER_KEY, bench.now)
        while hurried.tracker.is_behind:
            assert not decision.writes and decision.requeue_after == 0.0
            slices += 1
            decision = hurried.decide(bench.store.view, SCHEDULER_KEY, bench.now)
        mine, others = list(decision.writes), bench.turn()
        assert [w for w in mine if isinstance(w, PLANNED)] == [w for w in others if isinstance(w, PLANNED)]
        assert sorted(map(str, mine)) == sorted(map(str, others)), "words about waiting may stand in another order"
        assert decision.requeue_after == bench.again
        if chance.random() < 0.3:
            bench.kubelet()
    assert slices > 20, "it was never interrupted"


def test_changes_that_come_while_gangs_wait_cost_no_slice_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 changes during a plan of 10,000 gangs read all of them, 6 s without a pause."""
    monkeypatch.setattr(snapshot_tracker, "ABSORBED_CHANGES", 8)
    monkeypatch.setattr(snapshot_tracker, "GANGS_PER_SLICE", 4)
    bench, scheduler = Bench(), Scheduler()
    bench.node("n1", 16)
    bench.queue("default")
    for number in range(40):
        bench.pod(f"p{number}")
    scheduler.decide(bench.store.view, SCHEDULER_KEY, bench.now)
    waiting = len(scheduler.tracker.outdated_gangs)
    assert waiting == 36
    for number in range(16):
        pod = bench.all(POD)[f"p{39 - number}"]
        scheduler.keys(bench.store.view, Change("Modified", revision(pod), POD, pod))
    assert len(scheduler.tracker.outdated_gangs) == waiting - 2 * 4
