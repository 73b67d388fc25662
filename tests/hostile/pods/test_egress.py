"""The pods' proxy: where it leads, what it holds, how it says no; and the hosts file that pods share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod
from tests.waiting import PATIENCE

from rowlock.kubelet.network import egress_policy
from rowlock.kubelet.network.egress_proxy import EgressProxy, Policy, ProxyLimits

FORBIDDEN = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "169.254.169.254", "169.254.0.1", "168.63.129.16", "100.100.100.200", "224.0.0.1",
    "255.255.255.255", "10.77.0.1", "10.77.3.4", "::1", "::", "fe80::1", "fe80::1%lo", "fd00:ec2::254", "ff02::1", "192.0.0.192", "fd00:c1::a9fe:a9fe", "fd20:ce::254",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "::7f00:1", "2002:7f00:1::", "no address",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_not_outside_is_denied(address: str) -> None:
    assert egress_policy.denial(address, 80)


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "192.168.1.7", "10.0.0.8", "2606:2800:220:1::1", "::ffff:8.8.8.8"]
)
def test_the_outside_is_allowed(address: str) -> None:
    assert egress_policy.denial(address, 443) == ""


def test_the_server_itself_is_denied_at_any_address_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_policy, "is_own_address", lambda address: str(address) == "192.0.2.7")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "is this server" in egress_policy.denial("192.0.2.7", port)
        assert egress_policy.denial("192.0.2.8", port) == ""
    assert egress_policy.denial("192.0.2.7", port) == ""


@asynccontextmanager
async def proxy(policy: Policy = egress_policy.denial, **limits: float) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        made = EgressProxy(listener, {}, policy=policy, limits=ProxyLimits(**limits))  # type: ignore[arg-type]
        task = asyncio.create_task(made.run())
        try:
            yield port
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


@asynccontextmanager
async def web(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "2130706433", "0x7f.1"])
def test_the_proxy_leads_to_nothing_of_this_machine(host: str) -> None:
    async def whole() -> None:
        calls = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            calls.append(1)
            writer.close()

        async with proxy() as port, web(serve) as target:
            for request in (
                f"CONNECT {host}:{target} HTTP/1.1\r\n\r\n",
                f"GET http://{host}:{target}/ HTTP/1.1\r\n\r\n",
            ):
                assert b" 403 Forbidden\r\n" in await ask(port, request.encode())
        assert not calls

    asyncio.run(whole())


def test_a_name_is_resolved_once_and_its_address_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the second answer would be this machine."""

    async def whole() -> None:
        asked = []

        def resolve(host: str, port: int, **_: object) -> list[object]:
            asked.append(host)
            address = "192.0.2.1" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        connected = []

        async def connect(host: str, port: int, **options: object) -> object:
            connected.append((host, options.get("flags")))
            raise OSError("nobody there")

        real = asyncio.open_connection
        async with proxy() as port:
            reader, writer = await real("127.0.0.1", port)
            monkeypatch.setattr(socket, "getaddrinfo", resolve)
            monkeypatch.setattr("asyncio.open_connection", connect)
            writer.write(b"CONNECT rebind.example:443 HTTP/1.1\r\n\r\n")
            assert b" 502 Bad Gateway\r\n" in await reader.read()
            writer.close()
        assert asked == ["rebind.example"] and connected == [("192.0.2.1", socket.AI_NUMERICHOST)]

    asyncio.run(whole())


def test_lookups_of_pods_take_no_thread_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads archives, removes pods and opens sessions in asyncio's own threads; those are few."""
    answer = threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        assert answer.wait(300)
        raise socket.gaierror("no such name")

    async def whole() -> None:
        async with proxy() as port:
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            monkeypatch.setattr(socket, "getaddrinfo", resolve)
            for _, writer in clients:
                writer.write(b"CONNECT slow.example:443 HTTP/1.1\r\n\r\n")
                await writer.drain()
            async with asyncio.timeout(PATIENCE):
                for _ in range(20):
                    await asyncio.to_thread(os.getpid)
            assert not answer.is_set()
            answer.set()
            for reader, writer in clients:
                assert b" 502 Bad Gateway\r\n" in await reader.read()
                writer.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"CONNECT :99999 HTTP/1.1\r\n\r\n", b"GET ftp://x/ HTTP/1.1\r\n\r\n",
                 b"CONNECT [::1:443 HTTP/1.1\r\n\r\n", b"\xff\xfe \0 \0\r\n\r\n"]
)  # fmt: skip
def test_what_is_no_request_is_refused(request_: bytes) -> None:
    async def whole() -> None:
        async with proxy() as port:
            assert b" 400 Bad Request\r\n" in await ask(port, request_)

    asyncio.run(whole())


def test_a_header_without_end_is_cut() -> None:
    async def whole() -> None:
        async with proxy(header=0.05) as port:
            assert await ask(port, b"CONNECT ") == b""
            with contextlib.suppress(ConnectionError):
                assert await ask(port, b"x" * (1 << 17)) == b""

    asyncio.run(whole())


def test_connections_have_a_limit_and_idle_ones_end() -> None:
    async def whole() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(5))
            await reader.read()
            writer.close()

        async with proxy(lambda *_: "", connections=3, per_pod=3, idle=0.3) as port, web(serve) as target:
            tunnels = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for reader, writer in tunnels:
                writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nhello" % target)
                assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
            assert b" 503 Service Unavailable\r\n" in await ask(port, b"")
            for reader, writer in tunnels:
                assert await reader.read() == b""  # idle for too long
                writer.close()
            assert b" 403 " not in await ask(port, b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % target)

    asyncio.run(whole())


def test_the_limits_fit_what_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    assert ProxyLimits.of_process().connections == 32
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert ProxyLimits.of_process().connections == 1024


# ---------------------------------------------------------------- from inside a pod


def on_namespaces(data: Path, body: Callable[[Node], Awaitable[None]]) -> None:
    async def checked(node: Node) -> None:
        if not node.kubelet.network.has_namespaces:
            pytest.skip(f"this kernel does not allow network namespaces here: {node.kubelet.network.choice.reason}")
        await body(node)

    on_node(data, checked, network="auto")


FETCH = """
import os, urllib.request as u, urllib.error as e
os.environ["no_proxy"] = ""
for host in ("127.0.0.1", "localhost", "169.254.169.254"):
    try: u.urlopen(f"http://{host}:%d/")
    except e.HTTPError as error: print(error.code)
"""


def test_a_pod_gets_nothing_of_this_machine(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        async with web(serve) as port:
            await node.add(pod("a", "", container={"command": ["python", "-c", FETCH % port]}))
            await node.ended("a")
            assert await node.log("a") == "403\n403\n403\n"

    on_namespaces(tmp_path, body)


def test_the_hosts_file_is_read_only(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(
            pod("a", "echo 10.77.9.9 b >> /etc/hosts; rm -f /etc/hosts; grep -c . /etc/hosts > /dev/null && echo there")
        )
        await node.ended("a")
        text = await node.log("a")
        assert "Read-only file system" in text and text.endswith("there\n"), text
        assert "10.77.9.9" not in (tmp_path / "hosts" / "default").read_text()

    on_namespaces(tmp_path, body)
