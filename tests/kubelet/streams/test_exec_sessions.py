"""Going into pods on the node itself: what a program beside the container's own has of its surroundings."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until
from tests.kubelet.network.test_namespaces import on_namespaces

from rowlock.errors import Internal, NotFound
from rowlock.kubelet.streams.exec_sessions import FailedSession, ProcessSession
from rowlock.objects import Key

SERVER = (
    "import socket; s = socket.create_server(('127.0.0.1', 23456)); print('up', flush=True)\n"
    "while True: c = s.accept()[0]; c.sendall(socket.gethostname().encode()); c.close()"
)


async def said(node: Node, name: str, *argv: str) -> tuple[int, str, bytes]:
    """How a command in a pod ended, and what it printed."""
    session = await node.kubelet.streaming.exec(Key("default", name), "main", list(argv))
    try:
        output = b"".join([piece async for piece in _pieces(session)])
        return *await session.wait_exit(), output
    finally:
        await session.close()


async def _pieces(session: ProcessSession | FailedSession) -> AsyncIterator[bytes]:
    while session.channels and (piece := await session.read(1)):
        yield piece


def test_who_goes_in_has_the_pods_network_and_name(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        for name in ("a", "b"):
            await node.add(pod(name, "", container={"command": ["python3", "-c", SERVER]}))
        for name in ("a", "b"):
            await node.phase(name, "Running")
            await node.said(name, "up")
            assert await said(node, name, "hostname") == (0, "", f"{name}\n".encode())
            connection = await node.kubelet.streaming.dial(Key("default", name), 23456)
            reader, writer = await asyncio.open_connection(sock=connection)
            assert await reader.read() == name.encode()  # both listen on the same port of "their" loopback
            writer.close()
            await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await node.kubelet.streaming.dial(Key("default", "a"), 23457)

    on_namespaces(tmp_path, body)


def test_who_goes_in_sees_the_pods_volumes(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        where = str(tmp_path / "seen" / "inside")
        mount = {"name": "v", "mountPath": where}
        volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
        await node.add(
            pod(
                "a",
                f"echo kept > {where}/file; echo written; sleep 600",
                spec=volumes,
                container={"volumeMounts": [mount]},
            )
        )
        await node.phase("a", "Running", "Pending")
        if node.kubelet.node.mount_problem:
            pytest.skip(f"nothing can be mounted here: {node.kubelet.node.mount_problem}")
        await node.said("a", "written")
        assert await said(node, "a", "cat", f"{where}/file") == (0, "", b"kept\n")
        assert not (tmp_path / "seen" / "inside" / "file").exists()

    on_node(tmp_path, body)


def test_an_exec_outlives_a_restart_of_neither_server_nor_container(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 600"))
        await node.phase("a", "Running")
        session = await node.kubelet.streaming.exec(Key("default", "a"), "main", ["sleep", "600"])
        pid = session.pid
        await session.close()
        await until(lambda: not Path(f"/proc/{pid}").exists(), "the program of a session that was closed to end")
        await node.stop()
        await node.start()  # what a later server knows of the container is on disk
        assert await said(node, "a", "sh", "-c", "echo $ROWLOCK_POD_UID") == (
            0, "", (node.pod("a")["metadata"]["uid"] + "\n").encode(),
        )  # fmt: skip

    on_node(tmp_path, body)


def test_what_cannot_be_entered(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "exit 0"), pod("b", "sleep 600"))
        await node.ended("a")
        await node.phase("b", "Running")
        with pytest.raises(Internal, match="container not found"):
            await said(node, "a", "true")
        with pytest.raises(Internal, match="not running"):
            await node.kubelet.streaming.dial(Key("default", "a"), 80)
        with pytest.raises(NotFound):
            await said(node, "nobody", "true")
        assert (await said(node, "b", "/no/such"))[1] == 'exec: "/no/such": no such file or directory'
        facts = json.loads(next(tmp_path.glob("pods/*/main/program.0")).read_bytes())
        assert facts["cwd"] and (tmp_path / "pods").stat().st_mode & 0o077 == 0  # variables may be secrets

    on_node(tmp_path, body)
