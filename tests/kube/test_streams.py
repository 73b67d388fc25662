"""exec, attach and port-forward through `rowlock up --kubeconfig`, into pods of an embedded cluster that stands for another one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import REPO, Cluster, lent
from tests.kube.scripted import Answer, Scripted, refusal

from rowlock.errors import Forbidden, Unavailable
from rowlock.kube.config import Credentials
from rowlock.kube.connection import Connection
from rowlock.kube.proxy import container_command
from rowlock.kube.proxy.container_command import CommandResult, run_in_container
from rowlock.kube.proxy.websocket_relay import V5, ClusterWebSocket, relay_stream
from rowlock.kube.users.cluster_users import ClusterUsers
from rowlock.kube.users.user_connection import UserConnection

ECHO = (
    "import socket, threading, time\n"
    "def tick():\n"
    "    while True: print('tick', flush=True); time.sleep(0.2)\n"
    "threading.Thread(target=tick, daemon=True).start()\n"
    "listener = socket.create_server(('127.0.0.1', 7123)); print('listening', flush=True)\n"
    "while True:\n"
    "    connection = listener.accept()[0]; data = connection.recv(1000); connection.sendall(data.upper()); connection.close()\n"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server over another cluster, with a job there that listens on a port."""
    other, home = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("served")
    with embedded_server(other, "rowlock.serve", "--warm-start", "off") as kubeconfig, lent(home) as made:
        made.up("--kubeconfig", str(kubeconfig))
        made.run("rowlock", "project", "create", "team-a")
        image = ("-i", "rowlock.dev/host", "--no-master", "--workers=1", "-p", "team-a")
        made.run("runai", "submit-dist", "pytorch", "echo", *image, "--", "python3", "-c", ECHO)
        made.until(
            lambda: "listening" in made.run("rowlock", "logs", "echo", "-p", "team-a", code=None), "the pod listens"
        )
        yield made


def test_a_command_runs_and_its_exit_code_comes_back(served: Cluster) -> None:
    assert "echo-worker-0" in served.run("rowlock", "exec", "echo", "-p", "team-a", "--", "hostname")
    served.run("rowlock", "exec", "echo", "-p", "team-a", "--", "sh", "-c", "exit 7", code=7)


def test_input_reaches_the_program_and_ends(served: Cluster) -> None:
    argv = ["rowlock", "exec", "-i", "echo", "-p", "team-a", "--", "wc", "-c"]
    sent = os.urandom(300_000)
    done = subprocess.run(argv, env=served.env, input=sent, capture_output=True, timeout=200, cwd=REPO)
    assert done.stdout.split() == [b"300000"], done.stderr


def test_output_is_whole(served: Cluster) -> None:
    argv = ["rowlock", "exec", "echo", "-p", "team-a", "--", "head", "-c", "5000000", "/dev/zero"]
    done = subprocess.run(argv, env=served.env, capture_output=True, timeout=200, cwd=REPO)
    assert len(done.stdout) == 5_000_000 and done.returncode == 0


def test_what_the_program_prints_is_seen(served: Cluster) -> None:
    argv = ["rowlock", "attach", "echo", "-p", "team-a", "--no-stdin"]
    with subprocess.Popen(
        argv, env=served.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == "tick\n"
        attached.terminate()


def test_a_port_is_forwarded(served: Cluster) -> None:
    argv = ["rowlock", "port-forward", "echo", "-p", "team-a", "--port", ":7123"]
    with subprocess.Popen(argv, env=served.env, stdout=subprocess.PIPE, text=True, cwd=REPO) as forwarding:
        try:
            assert forwarding.stdout is not None
            said = re.search(r"from 127\.0\.0\.1:(\d+) ", forwarding.stdout.readline())
            assert said is not None
            with socket.create_connection(("127.0.0.1", int(said[1])), timeout=200) as connection:
                connection.sendall(b"hello")
                assert connection.recv(100) == b"HELLO"
        finally:
            forwarding.terminate()


def test_a_command_of_ours_is_run_and_what_it_wrote_read(served: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight at that cluster, as the server asks what it wants to know."""
    place = ("runai-team-a", "echo-worker-0", "pytorch")
    kubeconfig = json.loads((served.data / "server.json").read_text())["kubeconfig"]

    async def run(*command: str, timeout: float = 30.0, stdin: bytes = b"") -> CommandResult:
        connection = Connection(Credentials(kubeconfig))
        try:
            return await run_in_container(connection, place, command, timeout, stdin)
        finally:
            await connection.close()

    done = asyncio.run(run("sh", "-c", 'echo out; echo err >&2; echo "$0"', "a b&c=d\n"))
    assert done == CommandResult(b"out\na b&c=d\n\n", "err", "")
    assert "exit code 44" in asyncio.run(run("sh", "-c", "exit 44")).problem
    given = bytes(range(256)) * 200
    assert asyncio.run(run("head", "-c", str(len(given)), stdin=given)) == CommandResult(given, "", "")
    assert "exit code 44" in asyncio.run(run("sh", "-c", "exit 44", stdin=given)).problem, "it reads nothing"
    with pytest.raises(Unavailable, match=r"no answer from echo-worker-0 within 0\.5 s"):
        asyncio.run(run("sleep", "600", timeout=0.5))
    monkeypatch.setattr(container_command, "MAX_OUTPUT_BYTES", 1 << 20)
    flooded = asyncio.run(run("cat", "/dev/zero"))
    assert flooded.problem == "it wrote more than 1 MiB" and len(flooded.output) < 4 << 20


def test_what_the_cluster_refuses_is_its_own_sentence(served: Cluster) -> None:
    refused = served.run("rowlock", "exec", "echo", "-p", "team-a", "--container", "none", "--", "true", code=None)
    assert "no container none" in refused
    served.run("rowlock", "delete", "echo", "-p", "team-a")
    assert "Traceback" not in served.run("rowlock", "exec", "echo", "-p", "team-a", "--", "true", code=None)


async def _open_stream(kubeconfig: Path) -> None:
    connection = Connection(Credentials(kubeconfig))
    try:
        await ClusterWebSocket.open(connection, "/api/v1/namespaces/a/pods/b/exec?command=true", [V5])
    finally:
        await connection.close()


def test_a_refusal_before_the_handshake_is_an_error_with_its_code(tmp_path: Path) -> None:
    async def run() -> None:
        async with Scripted(Answer(403, refusal(403, "Forbidden", "pods/exec is forbidden"))).running() as server:
            with pytest.raises(Forbidden, match="pods/exec is forbidden"):
                await _open_stream(server.kubeconfig(tmp_path))

    asyncio.run(run())


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    nowhere = Scripted()
    nowhere.url = "http://127.0.0.1:9"
    with pytest.raises(Unavailable, match="the API server cannot be reached"):
        asyncio.run(_open_stream(nowhere.kubeconfig(tmp_path)))


class Endless:
    """A program that says nothing."""

    version = V5
    is_closed = False

    async def messages(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def close(self) -> None:
        self.is_closed = True


class Refused(UserConnection):
    """Its token was taken back."""

    async def wait_until_refused(self) -> str:
        return "sign in again"


@pytest.mark.parametrize(("part", "is_told"), [("exec", True), ("attach", True), ("portforward", False)])
def test_a_stream_ends_when_its_users_token_counts_no_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, is_told: bool
) -> None:
    """In the words of a program's end, which commands print; a forwarded port has no place for words."""
    program, sent = Endless(), list[Any]()

    async def opened(*_: Any) -> Endless:
        return program

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        monkeypatch.setattr(ClusterWebSocket, "open", opened)
        base = Connection(Credentials(Scripted().kubeconfig(tmp_path)))
        connection = Refused(base, "of-ana", ClusterUsers(base))
        scope = {"path": f"/api/v1/namespaces/a/pods/b/{part}", "query_string": b"", "subprotocols": [V5]}
        await asyncio.wait_for(relay_stream(connection, scope, receive, send), 200)

    asyncio.run(run())
    assert program.is_closed and sent[-1] == {"type": "websocket.close", "code": 1000}
    told = [message["bytes"] for message in sent if message["type"] == "websocket.send"]
    assert len(told) == is_told
    if is_told:
        assert told[0][:1] == b"\x03" and json.loads(told[0][1:])["message"] == "sign in again"
