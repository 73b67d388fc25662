"""Pods that are made anew because they fail: as a job with `restartPolicy: ExitCode` makes them, without end."""

from __future__ import annotations

from pathlib import Path

from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.objects import Object

OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "loop", "uid": "job-1", "controller": True}


def failing(times: Path) -> Object:
    return pod("loop-master-0", f"date +%s.%N >> {times}; exit 137", ownerReferences=[OWNER])


def test_a_pod_waits_whose_predecessors_have_failed(tmp_path: Path) -> None:
    times = tmp_path / "times"

    async def body(node: Node) -> None:
        for _ in range(3):
            await node.add(failing(times))
            await node.phase("loop-master-0", "Failed")
            await node.delete("loop-master-0")
        begun = [float(line) for line in times.read_text().split()]
        assert len(begun) == 3 and begun[2] - begun[1] >= 0.9

    on_node(tmp_path / "data", body, restart_backoff=10.0)


def test_a_pod_that_waits_says_so_and_can_be_deleted(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        for _ in range(2):
            await node.add(failing(tmp_path / "times"))
            await node.phase("loop-master-0", "Failed")
            await node.delete("loop-master-0")
        await node.add(failing(tmp_path / "times"))
        await until(lambda: node.state("loop-master-0", "state.waiting.reason") == "ContainerCreating")
        said = "Starting 600 s after the failure of the pod before it"
        await until(lambda: any(r == "BackOff" and m.startswith(said) for _, r, m in node.events("loop-master-0")))
        await node.delete("loop-master-0")
        assert len((tmp_path / "times").read_text().split()) == 2

    on_node(tmp_path / "data", body, restart_backoff=6000.0)
