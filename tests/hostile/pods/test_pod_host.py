"""The pod host: who may speak to it, where it listens, and what becomes of the pods' network when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.api import DeleteOptions
from rowlock.errors import Unavailable
from rowlock.kubelet.runtime import container_runs, pod_host_client
from rowlock.kubelet.runtime.pod_host_client import PodHostClient
from rowlock.kubelet.shim import pod_host, stdio
from rowlock.kubelet.worker.pod_worker import HOSTS_TO_TRY


def test_a_long_data_path_needs_no_directory_that_others_can_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / ("d" * 120) / ("e" * 60)
    data.mkdir(parents=True)
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))

    async def body(node: Node) -> None:
        await node.add(pod("a", "echo works"))
        await node.ended("a")
        assert await node.log("a") == "works\n"
        assert (data / "podhost.sock").is_socket() and not list(shared.iterdir())

    on_node(data, body)


def test_peers_are_known_by_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert stdio.is_own_peer(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert not stdio.is_own_peer(ours)


def test_another_users_pod_host_gets_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.kubelet.runtime.pod_host_client.is_own_peer", lambda _: False)

    async def ask() -> None:
        host = PodHostClient(tmp_path)
        with pytest.raises(Unavailable, match="another user listens at"):
            await host.connect("none")
        with pytest.raises(Unavailable, match="another user listens"):
            await host.request_socket("dial", port=1)
        await host.close()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "podhost.sock"))
        listener.listen()
        asyncio.run(ask())
        for _ in range(2):
            with listener.accept()[0] as connection:
                assert connection.recv(1000) == b"", "nothing was said to it"


@pytest.mark.parametrize(
    "line", [b"{\n", b"[]\n", b"5\n", b"null\n", b"\xff\n", b"[" * 100_000 + b"\n", b'{"op": []}\n', b"{}\n"]
)
def test_a_line_that_is_no_request_does_not_end_it(tmp_path: Path, line: bytes) -> None:
    async def body(node: Node) -> None:
        pid = node.kubelet.host.hello["pid"]
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(tmp_path / "podhost.sock"))
            client.sendall(line * 2)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        await node.add(pod("a", "true"))
        await node.ended("a")
        assert node.kubelet.host.hello["pid"] == pid

    on_node(tmp_path, body)


async def kill_pod_host(node: Node) -> None:
    """Returns when there is another one."""
    host = node.kubelet.host
    old = host.hello["pid"]
    os.kill(old, signal.SIGKILL)
    await until(lambda: host.hello.get("pid", old) != old and host.is_connected, "a new pod host")


ROUNDS, PODS_PER_ROUND = 4, 12


def test_when_it_is_killed_under_short_pods_they_keep_their_network(tmp_path: Path) -> None:
    """Each round kills it while pods begin and end: all of them run, in namespaces, and the node says so."""

    async def body(node: Node) -> None:
        if not node.kubelet.network.has_namespaces:
            pytest.skip(f"this kernel does not allow network namespaces here: {node.kubelet.network.choice.reason}")
        names: list[str] = []
        for number in range(ROUNDS):
            round_names = [f"p{number}-{n}" for n in range(PODS_PER_ROUND)]
            await node.add(*(pod(name, f"getent hosts {name}") for name in round_names))
            await node.phase(round_names[0], "Running", "Succeeded", "Failed")
            await kill_pod_host(node)
            names += round_names
        await node.ended(*names)
        for name in names:
            status = node.pod(name)["status"]
            assert status["phase"] == "Succeeded", status
            assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
            assert (await node.log(name)).startswith(status["podIP"] + " ") and status["podIP"].startswith("10.77.")
        await node.add(pod("last", "echo fine"))
        await node.ended("last")
        assert node.kubelet.host.hello["fabric"]

    on_node(tmp_path, body, network="auto")


def test_a_stopped_pod_host_is_replaced_while_pods_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_host_client, "_ANSWER_TIMEOUT", 0.1)

    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 600"))
        await node.phase("a", "Running")
        old = node.kubelet.host.hello["pid"]
        os.kill(old, signal.SIGSTOP)
        await node.add(pod("b", "echo new"))
        await node.ended("b")
        assert await node.log("b") == "new\n" and node.kubelet.host.hello["pid"] != old
        assert node.state("a", "state.running")

    on_node(tmp_path, body)


def test_a_stopped_pod_host_does_not_keep_the_next_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_host_client, "_ANSWER_TIMEOUT", 0.1)

    async def body() -> bool:
        first, second = PodHostClient(tmp_path), PodHostClient(tmp_path)
        stopped = (await first.connect("none"))["pid"]
        os.kill(stopped, signal.SIGSTOP)
        await first.close()
        started = (await second.connect("none"))["pid"]
        await second.dismiss()
        await second.close()
        os.waitpid(stopped, 0)
        return bool(started != stopped)

    assert asyncio.run(asyncio.wait_for(body(), 200))


def test_a_stopped_shim_keeps_no_pod_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its program may do (`kill -STOP $PPID`) does not save it."""
    monkeypatch.setattr(container_runs, "STOPPED_SHIM_MARGIN", 0.1)

    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 600"))
        await node.phase("a", "Running")
        start = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "main" / "start.0"
        facts = json.loads(start.read_text())
        program = psutil.Process(facts["pid"])
        os.kill(facts["shim"], signal.SIGSTOP)
        await node.delete("a", DeleteOptions(grace=1))
        await until(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE, "the program's end")

    on_node(tmp_path, body)


def test_variables_that_double_stop_the_start_of_their_pod_alone(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        def is_refused(name: str) -> bool:
            return bool(node.state(name, "state.waiting.reason") == "CreateContainerConfigError")

        doubles = [{"name": "V", "value": "ab"}, *({"name": "V", "value": "$(V)$(V)"} for _ in range(60))]
        large = [{"name": "L", "value": "x" * 100_000}]
        await node.add(
            pod("variables", "true", container={"env": doubles}),
            pod("arguments", "true", container={"env": large, "args": ["$(L)"] * 200}),
            pod("beside", "echo works"),
        )
        await node.ended("beside")
        assert await node.log("beside") == "works\n"
        for name in ("variables", "arguments"):
            await until(partial(is_refused, name), name)
            assert "exec takes" in node.state(name, "state.waiting.message")

    on_node(tmp_path, body)


def test_a_request_that_the_pod_host_does_not_take_is_answered(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        host = node.kubelet.host
        pid, large = host.hello["pid"], "x" * pod_host.MAX_REQUEST_BYTES
        answer = await host.ask("start", request={"argv": [large]})
        assert "the pod host takes 33554432" in answer["error"]
        await node.add(pod("a", "true"))
        await node.ended("a")
        assert host.hello["pid"] == pid

    on_node(tmp_path, body)


MUTE = """
import json, os, socket, sys
sys.path.append(sys.argv[1])
from rowlock.kubelet.shim.fact_files import ticks
client = socket.socket(fileno=int(sys.argv[2])).accept()[0]
hello = {"id": 1, "pid": os.getpid(), "ticks": ticks(os.getpid()), "protocol": PROTOCOL}
client.recv(4096) and client.sendall(json.dumps(hello).encode() + b"\\n")
while client.recv(4096):
    pass
"""


def test_a_pod_host_that_answers_no_more_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one pod's request has done to it: no start of another one waits for ever."""

    async def body() -> None:
        host = PodHostClient(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(pod_host, "BOOT", MUTE.replace("PROTOCOL", str(pod_host.PROTOCOL)))
            mute = (await host.connect("none"))["pid"]
        monkeypatch.setattr(pod_host_client, "_ANSWER_TIMEOUT", 0.1)  # now: its start may take longer
        monkeypatch.setattr(pod_host_client, "_HUNG_AFTER", 0.3)
        assert await host.ask("start", request={}) == pod_host_client.HOST_GONE
        monkeypatch.setattr(pod_host_client, "_HUNG_AFTER", 120.0)
        assert (await host.connect("none"))["pid"] != mute
        await host.dismiss()
        await host.close()

    asyncio.run(asyncio.wait_for(body(), 120))


def test_a_pod_that_no_pod_host_survives_is_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(node: Node) -> None:
        host, uid, starts = node.kubelet.host, "", 0
        ask = host.ask

        async def die(op: str, **request: Any) -> dict[str, Any]:
            nonlocal starts
            if op == "start" and request["request"]["hint"].startswith(uid):
                starts += 1
                return dict(pod_host_client.HOST_GONE)
            return await ask(op, **request)

        await node.add(pod("bad", "true"), bind=False)
        uid = node.pod("bad")["metadata"]["uid"]
        monkeypatch.setattr(host, "ask", die)
        await node.store.bind("default", "bad", node.name)
        await until(lambda: node.state("bad", "state.waiting.reason") == "CreateContainerError", "the problem")
        assert node.state("bad", "state.waiting.message") == "the program could not be started: the pod host has gone"
        assert starts > HOSTS_TO_TRY

    on_node(tmp_path, body)
