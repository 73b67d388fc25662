"""The browsers' port on the server's own HTTP protocol: plain, counted like the others, and rid of readers that take nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.waiting import until_async as until

from rowlock.browser.event_stream import EventStream
from rowlock.http_server import certificates, http_protocol, sockets
from rowlock.http_server.connection_limits import ConnectionCounts
from rowlock.http_server.tls import server_context

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Listening:
    """A server with a TLS port and a plain one; `app` says which of them was asked, or streams without an end."""

    def __init__(self, ports: list[int], counts: list[ConnectionCounts]) -> None:
        self.tls_port, self.plain_port = ports
        self.counts = counts

    def open_connections(self) -> int:
        return sum(counts._total for counts in self.counts)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b": alive\n\n" * 10_000


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/stream":
        return await EventStream(endless(), send_timeout=0.2)(scope, receive, send)
    body = f"{scope['scheme']} {scope['server'][1]}".encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


def play(data: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Listening], Awaitable[None]]) -> None:
    made: list[ConnectionCounts] = []

    def count(descriptors: set[int] | None) -> ConnectionCounts:
        made.append(ConnectionCounts(descriptors))
        return made[-1]

    monkeypatch.setattr(http_protocol, "ConnectionCounts", count)
    papers = certificates.ensure_certificates(data)

    async def main() -> None:
        api = sockets.open_listeners(0, data)[0]
        plain = sockets.open_browser_listener(data, api.getsockname()[1])
        ports = [listener.getsockname()[1] for listener in (api, plain)]
        factory = http_protocol.protocol_factory(server_context(papers.certificate, papers.key), ports[1])
        config = uvicorn.Config(app, http=factory, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve([api, plain]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            async with asyncio.timeout(200):
                await story(Listening(ports, made))
        finally:
            server.should_exit = True
            await serving

    asyncio.run(main())


async def ask(port: int, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
    finally:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])


def test_each_port_speaks_its_own_language_and_both_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting = ssl.create_default_context(cafile=str(certificates.ensure_certificates(tmp_path).ca))

    async def story(listening: Listening) -> None:
        assert await ask(listening.plain_port) == f"http {listening.plain_port}".encode()
        assert await ask(listening.tls_port, trusting) == f"https {listening.tls_port}".encode()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await ask(listening.plain_port, trusting)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask(listening.tls_port)
        (_,) = listening.counts
        await until(lambda: listening.open_connections() == 0)
        _, writer = await asyncio.open_connection("127.0.0.1", listening.plain_port)
        await until(lambda: listening.open_connections() == 1)
        writer.close()
        await writer.wait_closed()
        await until(lambda: listening.open_connections() == 0)

    play(tmp_path, monkeypatch, story)


def test_a_reader_that_takes_nothing_loses_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(listening: Listening) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", listening.plain_port))
            await loop.sock_sendall(sock, REQUEST.replace(b"/ ", b"/stream ", 1))
            assert (await loop.sock_recv(sock, 4096)).startswith(b"HTTP/1.1 200")
            await until(lambda: listening.open_connections() == 0)

    play(tmp_path, monkeypatch, story)


def test_the_port_of_last_time_is_taken_again_but_never_the_apis(tmp_path: Path) -> None:
    with sockets.open_browser_listener(tmp_path, 0) as first:
        port = first.getsockname()[1]
    (tmp_path / "server.json").write_text(f'{{"ui": "http://127.0.0.1:{port}/"}}')
    with sockets.open_browser_listener(tmp_path, port) as other:
        assert other.getsockname()[1] != port
    with sockets.open_browser_listener(tmp_path, 0) as again:
        assert again.getsockname() == ("127.0.0.1", port)
    for odd in ("", "[]", '{"ui": 7}', '{"ui": "http://127.0.0.1:99999/"}'):
        (tmp_path / "server.json").write_text(odd)
        with sockets.open_browser_listener(tmp_path, 0) as fresh:
            assert fresh.getsockname()[0] == "127.0.0.1"
