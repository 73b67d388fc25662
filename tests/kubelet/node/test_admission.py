"""Pods that name their node themselves, past the scheduler, are let onto it as far as there is room."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.node.admission import admission_failure, is_placed, requested_amount
from rowlock.kubelet.node.gpus import assign_devices
from rowlock.kubelet.node.machine import Gpu, NodePlan
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec

CARDS = tuple(Gpu(f"GPU-{letter}", "H100", 80_000) for letter in "abc")
NODE = NodePlan("n", Decimal(4), 8 << 30, CARDS, max_pods=3)


def asking(annotations: dict[str, str] | None = None, init: dict[str, str] | None = None, **limits: str) -> PodSpec:
    named = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in limits.items()}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": named}}]}
    if init:
        spec["initContainers"] = [{"name": "init", "resources": {"requests": init}}]
    return parse_pod_spec({"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec})


@pytest.mark.parametrize(
    ("made", "others", "held", "failure"),
    [
        (asking(cpu="4", memory="8Gi", gpu="3"), [], {}, None),
        (asking(), [asking(cpu="4")], {}, None),
        (asking(cpu="2"), [asking(cpu="2500m")], {}, ("OutOfcpu", "cpu, requested: 2000, used: 2500, capacity: 4000")),
        (asking(init={"cpu": "5"}), [], {}, ("OutOfcpu", "cpu, requested: 5000, used: 0, capacity: 4000")),
        (asking(memory="5Gi"), [asking(memory="4Gi")], {}, ("OutOfmemory", "memory, requested: 5368709120, used: 4294967296, capacity: 8589934592")),
        (asking(gpu="2"), [], {"x": ("GPU-a", "GPU-b")}, ("OutOfnvidia.com/gpu", "nvidia.com/gpu, requested: 2, used: 2, capacity: 3")),
        (asking(gpu="4"), [], {}, ("OutOfnvidia.com/gpu", "nvidia.com/gpu, requested: 4, used: 0, capacity: 3")),
        (asking(), [asking()] * 3, {}, ("OutOfpods", "pods, requested: 1, used: 3, capacity: 3")),
    ],
)  # fmt: skip
def test_there_is_room_or_not(
    made: PodSpec, others: list[PodSpec], held: dict[str, tuple[str, ...]], failure: tuple[str, str] | None
) -> None:
    prefix = "Pod was rejected: Node didn't have enough resource: "
    assert admission_failure(made, NODE, others, held) == (failure and (failure[0], prefix + failure[1]))


def test_a_share_of_a_gpu_takes_the_scheduler() -> None:
    reason, message = admission_failure(asking({"gpu-fraction": "0.5"}), NODE, [], {}) or ("", "")
    assert reason == "OutOfnvidia.com/gpu" and "leave spec.nodeName out" in message


def test_what_a_pod_asks_for() -> None:
    assert requested_amount(asking(cpu="500m", init={"cpu": "2"}), "cpu") == 2
    assert requested_amount(asking(cpu="3", init={"cpu": "2"}), "cpu") == 3


def test_who_names_the_node_names_no_devices() -> None:
    chosen = asking({"rowlock.dev/devices": "0,1,2"}, gpu="1")
    assert assign_devices(chosen, NODE, {"x": ("GPU-a",)}, is_placed=False) == ("GPU-b",)
    assert assign_devices(chosen, NODE, {}, is_placed=True) == ("GPU-a", "GPU-b", "GPU-c")
    assert not is_placed(chosen)


def test_a_pod_that_is_not_let_in_fails_and_starts_nothing(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        def gpus(name: str, count: str) -> Any:
            resources = {"limits": {"nvidia.com/gpu": count}}
            return pod(
                name,
                "echo $CUDA_VISIBLE_DEVICES; sleep 600",
                container={"resources": resources},
                spec={"nodeName": node.name},
            )

        await node.add(gpus("first", "2"), bind=False)
        await node.phase("first", "Running")
        await node.add(gpus("second", "1"), pod("third", "echo works", spec={"nodeName": node.name}), bind=False)
        await node.phase("second", "Failed")
        status = node.pod("second")["status"]
        assert status["reason"] == "OutOfnvidia.com/gpu", status
        assert status["message"].endswith("nvidia.com/gpu, requested: 1, used: 2, capacity: 2")
        assert not list(tmp_path.glob(f"pods/{node.pod('second')['metadata']['uid']}/main/start.*"))
        await until(lambda: any(r == "OutOfnvidia.com/gpu" for _, r, _ in node.events("second")), "the event")
        await node.ended("third")
        assert await node.log("third") == "works\n"
        await node.delete("second")

    on_node(tmp_path, body, simulated_gpus=2)
