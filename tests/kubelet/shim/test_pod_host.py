"""The pod host as the server meets it: what it costs, what it survives, and that one that cannot start is one sentence."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.kubelet.conftest import Node, on_node, pod, shim_request, until
from tests.waiting import PATIENCE

from rowlock import kinds
from rowlock.errors import Unavailable
from rowlock.kubelet.runtime.pod_host_client import HOST_GONE, PodHostClient, socket_path
from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.shim.pod_host import PodHost
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.worker.pod_worker import PodWorker


def test_a_pod_host_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_host, "BOOT", "raise SystemExit('no such thing')")

    async def connect() -> None:
        host = PodHostClient(tmp_path)
        try:
            await host.connect("none")
        finally:
            await host.close()

    with pytest.raises(Unavailable, match=r"podhost\.log says why"):
        asyncio.run(connect())
    assert "no such thing" in (tmp_path / "podhost.log").read_text()


def test_what_was_asked_before_the_connection_was_closed_is_answered(tmp_path: Path) -> None:
    """A refused `hello` closes it while the turns of pods wait for their starts."""

    async def body() -> tuple[Any, bool]:
        left = asyncio.Event()

        async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            await writer.wait_closed()
            left.set()

        async with (
            asyncio.timeout(PATIENCE),
            await asyncio.start_unix_server(answer_nothing, str(socket_path(tmp_path))),
        ):
            host = PodHostClient(tmp_path)
            assert await host._open_connection()
            start = asyncio.create_task(host.ask("start", request={}))
            await asyncio.sleep(0)
            await host.close()
            await left.wait()
            return await start, host.disconnected.is_set()

    assert asyncio.run(body()) == (HOST_GONE, True)


def test_a_socket_that_nobody_waits_for_any_more_is_closed(tmp_path: Path) -> None:
    async def body() -> None:
        asked, may_answer = threading.Event(), threading.Event()
        ours, theirs = socket.socketpair()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                asked.set()
                may_answer.wait(PATIENCE)
                socket.send_fds(client, [b"{}"], [theirs.fileno()])
                theirs.close()

        with socket.socket(socket.AF_UNIX) as listener, ours:
            listener.bind(str(tmp_path / "podhost.sock"))
            listener.listen()
            answering = asyncio.ensure_future(asyncio.to_thread(answer))
            asking = asyncio.ensure_future(PodHostClient(tmp_path).request_socket("proxy"))
            await asyncio.to_thread(asked.wait, PATIENCE)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert asking.cancelled()
            may_answer.set()
            await answering
            ours.settimeout(PATIENCE)
            assert await asyncio.to_thread(ours.recv, 1) == b"", "the other end is closed"

    asyncio.run(body())


def _facts(node: Node, name: str) -> dict[str, int]:
    uid = node.pod(name)["metadata"]["uid"]
    return dict(json.loads((node.data / "pods" / uid / "main" / "start.0").read_bytes()))


def test_a_pod_costs_less_than_a_mebibyte(tmp_path: Path) -> None:
    """What a shim has for itself; with its part of what all shims share it is the benchmark's figure."""

    async def body(node: Node) -> None:
        names = [f"p{n}" for n in range(6)]
        await node.add(*(pod(name, "echo a line; sleep 600") for name in names))
        for name in names:
            await node.phase(name, "Running")
            await node.said(name, "a line")
        rows = Path(f"/proc/{_facts(node, names[3])['shim']}/smaps_rollup").read_text().splitlines()
        private = sum(int(row.split()[1]) for row in rows if row.startswith("Private_"))
        assert private <= 1024, "\n".join(rows)

    on_node(tmp_path, body)


def _over(process: psutil.Process) -> bool:
    """It has ended, buried or not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_the_process_that_forks_shims_may_be_killed(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 600"))
        await node.phase("a", "Running")
        fork_server = psutil.Process(_facts(node, "a")["shim"]).parent()
        assert fork_server is not None
        fork_server.kill()
        await until(lambda: _over(fork_server), "its end")
        await node.add(pod("b", "echo fine"))
        await node.phase("b", "Succeeded")
        assert node.state("a", "state.running"), "who was forked before lives on"

    on_node(tmp_path, body)


def test_when_the_server_ends_the_pod_host_has_ended_too_but_for_pods_that_go_on(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 600"), pod("b", "true"))
        await node.phase("a", "Running")
        await node.ended("b")
        host = psutil.Process(node.kubelet.host.hello["pid"])
        family = [host, *host.children()]
        await node.stop()
        assert not _over(host), "a runs"
        await node.start()
        assert node.kubelet.host.hello["pid"] == host.pid
        await node.delete("a")
        await node.stop()
        assert _over(host)
        assert not (tmp_path / "podhost.sock").exists()
        await until(lambda: all(map(_over, family)), "its fork server's end")

    on_node(tmp_path, body)


def test_a_pod_host_without_a_fabric_refuses_pods_that_need_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod with an address of its own must not run in the machine's network, where nobody finds it."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host = PodHost(listener, "none")
        host.problem = "the kernel has no user namespaces"
        network = {"uid": "u-1", "ip": "10.77.0.2", "hosts": "", "hostname": "a"}
        request = shim_request(tmp_path, ["true"], network=network)
        answer, _ = host._handle_request({"op": "start", "request": request.to_json()})
    assert answer == {
        "error": "ValueError: there is no fabric for the pod's network: the kernel has no user namespaces"
    }


def test_a_request_of_another_version_is_refused_with_its_unknown_keys(tmp_path: Path) -> None:
    """A pod host outlives its server: what it does not know must not be left out silently."""
    request = shim_request(tmp_path, ["true"], limits={"memory": 1, "how": "watchdog"}, console={"tty": True})
    assert ShimRequest.from_json(json.loads(json.dumps(request.to_json()))).to_json() == {
        **request.to_json(), "namespaces": [], "mounts": [], "memory_volumes": [], "image_copy": []
    }  # fmt: skip
    for more, sentence in (
        ({"swap": 7}, r"unknown keys \(swap\)"),
        ({"limits": {"memory": 1, "inodes": 7}}, r"unknown keys in limits \(inodes\)"),
        ({"network": {"uid": "u", "ip": "", "hosts": "", "hostname": "", "mtu": 9000}}, r"in network \(mtu\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ShimRequest.from_json({**request.to_json(), **more})
    with pytest.raises(ValueError, match="lacks directory, number, argv, env, cwd, hint, wake_path"):
        ShimRequest.from_json({})


def test_what_a_finished_pod_had_is_given_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished pod has more turns, one for each change of its object; none of them costs the pod host anything."""
    ask, sync_pod, asked = PodHostClient.ask, PodWorker.sync_pod, list[str]()
    turns = 0

    async def unheard_first(client: PodHostClient, op: str, **request: Any) -> dict[str, Any]:
        asked.append(op)
        return dict(HOST_GONE) if op == "forget" and asked.count(op) == 1 else await ask(client, op, **request)

    async def counted(worker: PodWorker, *args: Any) -> float | None:
        nonlocal turns
        try:
            return await sync_pod(worker, *args)
        finally:
            turns += 1

    monkeypatch.setattr(PodHostClient, "ask", unheard_first)
    monkeypatch.setattr(PodWorker, "sync_pod", counted)

    async def body(node: Node) -> None:
        await node.add(pod("a", "true"))
        await node.ended("a")
        for number in range(4):
            before = turns
            await node.store.patch(kinds.POD, "default", "a", {"metadata": {"labels": {"turn": str(number)}}})
            await until(lambda: turns > before, "a turn")  # noqa: B023 (it is over before the next)
        assert asked.count("forget") == 2, asked

    on_node(tmp_path, body)


def test_a_variable_from_a_secret_may_hold_any_bytes(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        await node.store.create(kinds.SECRET, {**secret, "data": {"k": "/w=="}})
        source = {"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
        await node.add(pod("a", "printenv V | od -An -tx1", container={"env": [source]}))
        await node.ended("a")
        assert (await node.log("a")).split() == ["ff", "0a"]

    on_node(tmp_path, body)


def test_how_the_pod_host_is_linked_is_not_told_to_programs(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        assert psutil.Process(node.kubelet.host.hello["pid"]).environ()["LD_BIND_NOW"] == "1"
        await node.add(pod("a", 'echo "said: $LD_BIND_NOW."'))
        await node.ended("a")
        assert await node.log("a") == "said: .\n"

    on_node(tmp_path, body)
