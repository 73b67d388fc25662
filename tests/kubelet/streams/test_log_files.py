"""The logs of pods on a node, also of those that go while somebody asks."""

import asyncio
import threading
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest
from tests.kubelet.conftest import Node, on_node, pod, remove_pod
from tests.waiting import PATIENCE

from rowlock import kinds
from rowlock.api import DeleteOptions, LogOptions
from rowlock.errors import BadRequest
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.streams import log_files
from rowlock.kubelet.streams.log_files import PodLogs
from rowlock.objects import Key


def test_a_log_is_found_while_its_pod_is_being_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, never = threading.Event(), threading.Event()
    retire = PodDirectories.retire

    def slowly(self: PodDirectories, card: PodCard) -> bool:
        begun.set()
        never.wait(0.3)
        return retire(self, card)

    async def body(node: Node) -> None:
        await node.add(pod("a", "echo the first"))
        await node.ended("a")
        await node.delete("a")
        assert await node.log("a") == "the first\n"
        monkeypatch.setattr(PodDirectories, "retire", slowly)
        await node.add(pod("a", "echo the second"))
        await node.ended("a")
        await node.delete("a")
        assert await node.log("a") == "the second\n"  # not the first one's, and not "not found"
        assert begun.is_set()

    on_node(tmp_path, body)


def test_a_pod_that_took_nobodys_place_has_no_previous_log_and_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_REMOVAL_TIMEOUT", 600.0)

    async def body(node: Node) -> None:
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "job-1", "controller": True}
        await node.add(pod("a", "echo the first; sleep 100", ownerReferences=[job]))
        await node.phase("a", "Running")
        await node.said("a", "the first")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(BadRequest, match='previous terminated container "main" in pod "a" not found'):
                await node.log("a", previous=True, owner="job-1")
        await node.delete("a", DeleteOptions(grace=0))
        await node.add(pod("a", "echo the second; sleep 100", ownerReferences=[job]))
        await node.phase("a", "Running")
        await node.said("a", "the second")
        assert await node.log("a", previous=True, owner="job-1") == "the first\n"

    on_node(tmp_path, body)


class ManyPodStates(dict[str, PodState]):
    """Of so many pods that nobody may look at all of them."""

    def _refuse(self, *_: Any) -> Never:
        raise AssertionError("a reader looks at all pods")

    __iter__ = keys = values = items = _refuse


STORED = b"2026-01-01T00:00:00.000000000Z hello\n"
LAST_OF_JOB = LogOptions(previous=True, owner="job")


@pytest.fixture
def directories(tmp_path: Path) -> PodDirectories:
    return PodDirectories(tmp_path)


def add_pod(directories: PodDirectories, uid: str) -> PodCard:
    """A pod whose directory is there, with a log."""
    card = PodCard("default", "a", uid, "node", "", 0.0, owner="job")
    directories.write_card(card)
    (directories.container_directory(uid, "main")).mkdir()
    (directories.container_directory(uid, "main") / "log.0").write_bytes(STORED)
    return card


def pod_logs(directories: PodDirectories, present: PodCard | None) -> PodLogs:
    """With one pod of the name `a` in the store, or none."""
    spec = {"containers": [{"name": "main"}]}
    obj = {"metadata": {"name": "a", "namespace": "default", "uid": present.uid}, "spec": spec} if present else None
    view: Any = SimpleNamespace(get=lambda *_: obj)
    states = ManyPodStates({present.uid: PodState(present)} if present else {})
    return PodLogs(view, directories, states)


async def read_pieces(logs: PodLogs, options: LogOptions) -> bytes:
    return b"".join([piece async for piece in logs.read_log("default", "a", options)])


def test_a_reader_of_a_deleted_pods_log_waits_for_that_pod_and_looks_at_no_other(
    directories: PodDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_REMOVAL_TIMEOUT", 1e9)
    gone, looks, present_uids = add_pod(directories, "u1"), 0, directories.present_uids

    def noted(pod_key: Key) -> Set[str]:
        nonlocal looks
        looks += 1
        return present_uids(pod_key)

    monkeypatch.setattr(directories, "present_uids", noted)

    async def play() -> bytes:
        reading = asyncio.create_task(read_pieces(pod_logs(directories, None), LogOptions()))
        while looks < 2:
            await asyncio.sleep(0)
        remove_pod(directories, gone)
        directories.forget(gone)
        return await asyncio.wait_for(reading, 200)

    assert asyncio.run(play()) == b"hello\n"
    assert not present_uids(gone.key)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_asks_for_the_last_pod_of_a_rank_does_not_wait_for_its_next_one_to_go(
    tmp_path: Path, directories: PodDirectories, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    monkeypatch.setattr(log_files, "_REMOVAL_TIMEOUT", 1e9)
    gone = add_pod(directories, "u1")
    remove_pod(directories, gone)
    directories.forget(gone)
    card = add_pod(directories, "u2")
    if is_restarted:  # the server: it knows its pods from their cards
        directories = PodDirectories(tmp_path)
        assert directories.read_cards() == [card]
    assert directories.present_uids(card.key) == {"u2"}
    logs = pod_logs(directories, card)
    assert asyncio.run(asyncio.wait_for(read_pieces(logs, LAST_OF_JOB), 200)) == b"hello\n"


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
                await asyncio.wait_for(read(node, name, FOLLOW), PATIENCE)

    on_node(tmp_path, body)


async def read(node: Node, name: str, options: LogOptions) -> str:
    return "".join([chunk.decode() async for chunk in node.kubelet.logs.read_log("default", name, options)])
