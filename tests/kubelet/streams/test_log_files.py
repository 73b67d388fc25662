"""The logs of pods on a node, also of those that go while somebody asks."""

import threading
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod

from rowlock.kubelet.pod.directory import PodCard, PodDirectories


def test_a_log_is_found_while_its_pod_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, never = threading.Event(), threading.Event()
    remove = PodDirectories.remove

    def slowly(self: PodDirectories, card: PodCard) -> None:
        begun.set()
        never.wait(0.3)
        remove(self, card)

    async def body(node: Node) -> None:
        await node.add(pod("a", "echo the first"))
        await node.ended("a")
        await node.delete("a")
        assert await node.log("a") == "the first\n"
        monkeypatch.setattr(PodDirectories, "remove", slowly)
        await node.add(pod("a", "echo the second"))
        await node.ended("a")
        await node.delete("a")
        assert await node.log("a") == "the second\n"  # not the first one's, and not "not found"
        assert begun.is_set()

    on_node(tmp_path, body)
