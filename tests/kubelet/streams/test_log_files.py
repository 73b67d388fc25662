"""The logs of pods on a node, also of those that go while somebody asks."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod

from rowlock import kinds
from rowlock.api import DeleteOptions, LogOptions
from rowlock.errors import BadRequest
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.streams import log_files


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


def test_a_pod_that_took_nobodys_place_has_no_previous_log_and_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_REMOVAL_TIMEOUT", 60.0)

    async def body(node: Node) -> None:
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "job-1", "controller": True}
        await node.add(pod("a", "echo the first; sleep 100", ownerReferences=[job]))
        await node.phase("a", "Running")
        await node.said("a", "the first")
        async with asyncio.timeout(10):
            with pytest.raises(BadRequest, match='previous terminated container "main" in pod "a" not found'):
                await node.log("a", previous=True, owner="job-1")
        await node.delete("a", DeleteOptions(grace=0))
        await node.add(pod("a", "echo the second; sleep 100", ownerReferences=[job]))
        await node.phase("a", "Running")
        await node.said("a", "the second")
        assert await node.log("a", previous=True, owner="job-1") == "the first\n"

    on_node(tmp_path, body)


FOLLOW = LogOptions(follow=True, start_timeout=20.0)


def test_who_follows_a_new_pod_waits_for_its_start(tmp_path: Path) -> None:
    """To ask again and again, as long as it has not started, takes the time from its start."""

    async def body(node: Node) -> None:
        await node.add(pod("a", "echo hello"), bind=False)
        follower = asyncio.create_task(read(node, "a", FOLLOW))
        await asyncio.sleep(0)
        assert not follower.done()
        await node.store.bind("default", "a", node.name)
        assert await follower == "hello\n"

    on_node(tmp_path, body)


def test_who_cannot_start_is_not_waited_for(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("later", "true"), pod("nowhere", "true"), bind=False)
        with pytest.raises(BadRequest, match="waiting to start"):
            await read(node, "later", replace(FOLLOW, start_timeout=0.01))
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"status": {"conditions": [unschedulable]}}
        await node.store.patch(kinds.POD, "default", "nowhere", status, subresource="status")
        wrong = pod("wrong", "true")
        wrong["spec"]["containers"][0]["image"] = "no such image"
        await node.add(wrong)
        for name in ("nowhere", "wrong"):
            with pytest.raises(BadRequest, match="waiting to start"):
                await asyncio.wait_for(read(node, name, FOLLOW), 10)

    on_node(tmp_path, body)


async def read(node: Node, name: str, options: LogOptions) -> str:
    return "".join([chunk.decode() async for chunk in node.kubelet.logs.read_log("default", name, options)])
