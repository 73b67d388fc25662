"""What a pod's events say of a program that was asked to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions

DEAF = "trap '' TERM; echo ready; while true; do sleep 1; done"
POLITE = "trap 'exit 3' TERM; echo ready; while true; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "grace", "sentence"),
    [
        (POLITE, 60, "s after SIGTERM, of 60 s of grace, with exit code 3"),
        (DEAF, 1, "It used the 2 s of its grace up, and was killed"),
        (POLITE, 0, "(delete: the pod was deleted at once). It ended"),
    ],
)
def test_a_deleted_pods_end_is_told(tmp_path: Path, script: str, grace: int, sentence: str) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", script))
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a", DeleteOptions(grace=grace))
        await until(lambda: [e for e in node.events("a") if e[1] == "Stopped"], "the event")
        ((kind, _, message),) = [e for e in node.events("a") if e[1] == "Stopped"]
        assert kind == "Normal" and sentence in message and "(delete: the pod was deleted" in message

    on_node(tmp_path, body)


@pytest.mark.parametrize("which", ["liveness", "startup"])
def test_a_failed_probe_is_told(tmp_path: Path, which: str) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}

    async def body(node: Node) -> None:
        await node.add(pod("a", POLITE, container={f"{which}Probe": probe}))
        await node.phase("a", "Failed")
        await stopped(node, f"({which}: Container main failed {which} probe)")

    on_node(tmp_path, body)


def test_the_signal_is_told_that_the_pod_asks_for(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", POLITE.replace("TERM", "USR1"), container={"lifecycle": {"stopSignal": "SIGUSR1"}}))
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a")
        await stopped(node, "s after SIGUSR1, of ")

    on_node(tmp_path, body)


def test_a_deadline_is_told(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", POLITE))
        await node.phase("a", "Running")
        await node.store.patch(kinds.POD, "default", "a", {"spec": {"activeDeadlineSeconds": 1}})
        await node.phase("a", "Failed")
        await stopped(node, "(deadline: the pod's activeDeadlineSeconds (1) are over)")

    on_node(tmp_path, body)


def test_a_pod_that_is_deleted_by_force_saves_as_on_a_kubelet(tmp_path: Path) -> None:
    """Its object goes at once, its program has the pod's own grace; also when it was being deleted already."""
    saves = (
        f"trap 'sleep 3; touch {tmp_path}/$HOSTNAME.saved; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    )

    async def body(node: Node) -> None:
        for name, before in (("a", False), ("b", True)):
            await node.add(pod(name, saves.replace("$HOSTNAME", name), spec={"terminationGracePeriodSeconds": 61}))
            await node.phase(name, "Running")
            await node.said(name, "ready")
            if before:
                await node.store.delete(kinds.POD, "default", name)
            await node.delete(name, DeleteOptions(grace=0))
            await until((tmp_path / f"{name}.saved").exists, "the program to save")
            await node.told(name, "s of grace, with exit code 0")
        assert not any("killed" in message for *_, message in node.events("a") + node.events("b"))

    on_node(tmp_path, body)


def test_a_grace_of_the_pod_below_a_kubelets_is_that_of_a_kubelet(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", DEAF, spec={"terminationGracePeriodSeconds": 0}))
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a")
        await node.told("a", "It used the 2 s of its grace up, and was killed")

    on_node(tmp_path, body)


def test_gpus_of_a_removed_pod_are_given_on_when_its_programs_have_ended(tmp_path: Path) -> None:
    """The scheduler takes them for free: the object of the pod has gone."""
    saves = f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    gpu: dict[str, Any] = {
        "container": {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
        "annotations": {"rowlock.dev/devices": "0"},
    }

    async def body(node: Node) -> None:
        await node.add(pod("a", saves, **gpu))
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a", DeleteOptions(grace=0))
        await node.add(pod("b", "true", **gpu), pod("c", "true"))
        await node.ended("c")
        await node.told("b", "Waits for GPUs of pod default/a: it was deleted at once, and its programs still have")
        assert not node.pod("b")["status"].get("containerStatuses")
        (tmp_path / "go").touch()
        await node.ended("b")
        assert [reason for _, reason, _ in node.events("b")].count("WaitingForDevices") == 1

    on_node(tmp_path, body, simulated_gpus=1)


def test_an_operator_that_deletes_first_and_says_why_afterwards_is_understood(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
        job = await node.store.create(kinds.PYTORCHJOB, {**head, "metadata": {"name": "j", "namespace": "default"}})
        owner = {**head, "name": "j", "uid": job["metadata"]["uid"], "controller": True}
        await node.add(pod("a", POLITE, ownerReferences=[owner]))
        await node.phase("a", "Running")
        await node.said("a", "ready")
        await node.delete("a")
        message = "Job j has failed because it has reached the specified backoff limit"
        failed = {"type": "Failed", "status": "True", "message": message}
        await node.store.patch(
            kinds.PYTORCHJOB, "default", "j", {"status": {"conditions": [failed]}}, subresource="status"
        )
        await stopped(node, f": its job has failed ({message})")
        assert sum(reason == "Stopped" for _, reason, _ in node.events("a")) == 1

    on_node(tmp_path, body)


async def stopped(node: Node, why: str) -> None:
    await until(lambda: any(r == "Stopped" and why in m for _, r, m in node.events("a")), f"the event with {why}")


def test_who_ends_by_itself_was_not_stopped(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "exit 1"))
        await node.phase("a", "Failed")
        await until(lambda: len(node.events("a")) == 3)
        assert "Stopped" not in [reason for _, reason, _ in node.events("a")]

    on_node(tmp_path, body)
