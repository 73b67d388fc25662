"""On a cluster that is not ours, only pods that name our scheduler are placed, and Events are signed by it."""

from __future__ import annotations

from typing import Any

from tests.scheduling.cluster import Bench

from rowlock import api
from rowlock.kinds import POD_GROUP
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.scheduler_identity import CLUSTER_SCHEDULER_NAME, REAL_CLUSTER

OURS = {"schedulerName": CLUSTER_SCHEDULER_NAME}


def real_cluster_bench() -> Bench:
    bench = Bench(scheduler=Scheduler(identity=REAL_CLUSTER))
    bench.node("n1", 4)
    bench.queue("default")
    return bench


def grouped_pods(bench: Bench, name: str, *specs: dict[str, Any]) -> None:
    """A PodGroup without a job, and pods that name it."""
    bench.put(POD_GROUP, "t", name, spec={"minMember": len(specs), "queue": "default"})
    for number, spec in enumerate(specs):
        bench.pod(f"{name}-{number}", spec=spec, annotations={"pod-group-name": name})


def bound_pods(bench: Bench) -> set[str]:
    return {write.pod for write in bench.writes if isinstance(write, api.Bind)}


def test_only_pods_that_name_us_are_placed() -> None:
    bench = real_cluster_bench()
    for name, spec in (("ours", OURS), ("nobodys", {}), ("kais", {"schedulerName": "kai-scheduler"})):
        bench.pod(name, spec=spec)
    bench.turn()
    assert bound_pods(bench) == {"ours"}


def test_a_pod_of_another_scheduler_holds_its_room_and_is_not_evicted() -> None:
    bench = real_cluster_bench()
    bench.queue("owner", quota=4)
    for number in range(4):
        bench.pod(f"theirs-{number}", spec={"nodeName": "n1"})
    bench.pod("ours", queue="owner", spec=OURS)
    bench.turn()
    assert not [write for write in bench.writes if isinstance(write, api.Bind | api.Delete)]


def test_a_gang_is_placed_only_if_all_its_pods_name_us() -> None:
    bench = real_cluster_bench()
    grouped_pods(bench, "whole", OURS, OURS)
    grouped_pods(bench, "mixed", OURS, {})
    grouped_pods(bench, "theirs", {}, {})
    bench.turn()
    assert bound_pods(bench) == {"whole-0", "whole-1"}


def test_events_are_signed_with_our_name() -> None:
    bench = real_cluster_bench()
    bench.pod("fits", spec=OURS)
    bench.pod("too-large", 9, spec=OURS)
    bench.turn()
    sources = {write.source for write in bench.writes if isinstance(write, api.Record)}
    assert bound_pods(bench) == {"fits"} and sources == {CLUSTER_SCHEDULER_NAME}


def test_a_scheduler_that_begins_again_keeps_its_name() -> None:
    bench = real_cluster_bench()
    bench.turn()
    bench.scheduler.tracker._reset()
    bench.pod("nobodys")
    bench.turn()
    assert not bound_pods(bench)
