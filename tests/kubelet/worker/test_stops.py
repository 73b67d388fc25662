"""What a pod's events say of a program that was asked to end."""

from __future__ import annotations

from pathlib import Path

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
        (DEAF, 1, "It used the 1 s of its grace up, and was killed"),
        (DEAF, 0, "was stopped (delete: the pod was deleted at once). It had no grace, and was killed"),
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


def test_a_failed_probe_is_told(tmp_path: Path) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}

    async def body(node: Node) -> None:
        await node.add(pod("a", POLITE, container={"livenessProbe": probe}))
        await stopped(node, "(liveness: Container main failed liveness probe)")

    on_node(tmp_path, body)


def test_a_deadline_is_told(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", POLITE))
        await node.phase("a", "Running")
        await node.store.patch(kinds.POD, "default", "a", {"spec": {"activeDeadlineSeconds": 1}})
        await stopped(node, "(deadline: the pod's activeDeadlineSeconds (1) are over)")

    on_node(tmp_path, body)


async def stopped(node: Node, why: str) -> None:
    await node.phase("a", "Failed")
    await until(lambda: any(r == "Stopped" and why in m for _, r, m in node.events("a")), f"the event with {why}")


def test_who_ends_by_itself_was_not_stopped(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "exit 1"))
        await node.phase("a", "Failed")
        await until(lambda: len(node.events("a")) == 3)
        assert "Stopped" not in [reason for _, reason, _ in node.events("a")]

    on_node(tmp_path, body)
