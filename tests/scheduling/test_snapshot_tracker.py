"""The planner's world follows the view for a price that does not grow with the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduling.cluster import Bench

from rowlock.api import Change
from rowlock.kinds import NAMESPACE, NODE, POD, POD_GROUP, QUEUE
from rowlock.objects import Key, revision, with_field
from rowlock.scheduling import snapshot_tracker
from rowlock.scheduling.controller import SCHEDULER_KEY, Scheduler
from rowlock.scheduling.model.from_objects import NAMESPACE_QUEUE_LABEL
from rowlock.scheduling.snapshot_tracker import SnapshotTracker


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
