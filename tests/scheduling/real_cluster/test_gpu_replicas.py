"""Nodes whose GPUs NVIDIA's device plugin divides: a pod gets one replica, its queue pays its part of a GPU, and nobody gets a whole one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduling.cluster import Bench
from tests.scheduling.real_cluster.test_identity import OURS, bound_pods

from rowlock.kinds import NODE
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.scheduler_identity import REAL_CLUSTER

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PARTS = 4


def bench_with(resource: str = GPU, cards: int = 2) -> Bench:
    """One node whose cards are each announced four times."""
    bench = Bench(scheduler=Scheduler(identity=REAL_CLUSTER))
    room = {"cpu": "64", "memory": "64Gi", "pods": "110", resource: str(PARTS * cards)}
    labels = {"nvidia.com/gpu.replicas": str(PARTS)}
    bench.put(NODE, "", "divided", metadata={"labels": labels}, spec={}, status={"allocatable": room})
    return bench


def share(bench: Bench, name: str, portion: str = "0.25", resource: str = GPU, queue: str = "default") -> None:
    """As `gangs/gpu_replicas.py` dresses it."""
    limits = {"cpu": "1", resource: "1"}
    spec: dict[str, Any] = {**OURS, "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    notes = {"gpu-fraction": portion, "rowlock.dev/gpu-share": "device-plugin"}
    bench.pod(name, 0, queue=queue, spec=spec, annotations=notes)


@pytest.mark.parametrize("resource", [GPU, SHARED])
def test_as_many_pods_as_replicas_are_placed(resource: str) -> None:
    bench = bench_with(resource)
    bench.queue("default")
    for number in range(PARTS * 2 + 1):
        share(bench, f"share-{number}", resource=resource)
    bench.turn()
    assert len(bound_pods(bench)) == PARTS * 2
    bench.turn()
    assert not bound_pods(bench)


def test_a_share_that_is_larger_than_a_replica_waits() -> None:
    bench = bench_with()
    bench.queue("default")
    share(bench, "large", "0.3")
    share(bench, "small", "0.1")
    bench.turn()
    assert bound_pods(bench) == {"small"}


def test_a_whole_gpu_is_not_to_be_had_there() -> None:
    bench = bench_with()
    bench.queue("default")
    bench.pod("whole", 1, spec=OURS)
    bench.turn()
    assert not bound_pods(bench)
    bench.node("whole-cards", 1)
    bench.turn()
    assert bench.node_of("whole") == "whole-cards"


def test_a_queue_pays_a_replica_and_not_a_gpu() -> None:
    """Whatever was asked for: nobody else can have the rest of a replica."""
    bench = bench_with(cards=1)
    bench.queue("lender", quota=0.75)
    bench.queue("owner", quota=0.25)
    for number in range(PARTS):
        share(bench, f"lent-{number}", "0.1", queue="lender")
    bench.turn()
    assert len(bound_pods(bench)) == PARTS
    share(bench, "owned", "0.1", queue="owner")
    bench.turn()
    deleted = [write for write in bench.writes if type(write).__name__ == "Delete"]
    assert len(deleted) == 1, "the one part over its quota goes back"


def test_a_pod_of_somebody_else_holds_a_whole_card() -> None:
    """It names a device and no share: which part of which card it has, nobody knows."""
    bench = bench_with(cards=1)
    bench.queue("default")
    bench.pod("theirs", 1, spec={"nodeName": "divided"})
    share(bench, "ours")
    bench.turn()
    assert not bound_pods(bench)
