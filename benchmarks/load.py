"""A light HTTP client for load: TLS connections in one selector loop, requests made beforehand, answers barely parsed.

It costs about 40 µs a request, so the server is what is measured. One request at a time per connection (a closed
loop), as a client with keep-alive has it. HTTP/1.1, with Content-Length or chunks.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.peers import Peer

_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
PATIENCE = 120.0
"""Seconds without any answer after which a measurement gives up."""


def request(peer: Peer, verb: str, path: str, body: bytes = b"", media: str = "application/json") -> bytes:
    """One request as it goes over the wire."""
    lines = [
        f"{verb} {path} HTTP/1.1", f"Host: {peer.host}:{peer.port}", f"Authorization: Bearer {peer.token}",
        "Accept: application/json", "User-Agent: bench/1",
    ]  # fmt: skip
    if body:
        lines += [f"Content-Type: {media}", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection:
    """One keep-alive connection, TLS shaken hands already."""

    def __init__(self, peer: Peer) -> None:
        context = ssl.create_default_context(cafile=str(peer.authority))
        plain = socket.create_connection((peer.host, peer.port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname=peer.host)
        self.socket.setblocking(False)
        self._buffer = bytearray()
        self.began = 0.0

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Small requests fit into the socket's buffer; a large one waits for it."""
        self.began = time.perf_counter()
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                time.sleep(0.0002)

    def arrived(self) -> bytes:
        """What is there now; the rest of much comes at the next call. Raises ConnectionError when the server has hung up."""
        parts: list[bytes] = []
        while True:
            try:
                part = self.socket.recv(1 << 18)
            except ssl.SSLWantReadError:
                return b"".join(parts)
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            if not self.socket.pending():  # cheaper to ask than to be told by an exception
                return b"".join(parts)

    def answer(self) -> tuple[int, bytes] | None:
        """The whole answer, status and body (chunks as they came), or None while some of it is missing."""
        self._buffer += self.arrived()
        buffer = self._buffer
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = _content_length(buffer, head)
        if length is None:
            if not buffer.endswith(_END_OF_CHUNKS):
                return None
        elif len(buffer) < head + 4 + length:
            return None
        status, body = int(buffer[9:12]), bytes(buffer[head + 4 :])
        self._buffer = bytearray()
        return status, body


def _content_length(buffer: bytearray, head: int) -> int | None:
    text = bytes(buffer[:head]).lower()
    _, found, rest = text.partition(b"content-length:")
    return int(rest.partition(b"\r")[0]) if found else None


@dataclass
class Times:
    """What a load took: every request's latency, and the whole."""

    each: list[float] = field(default_factory=list)
    whole: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.each) / self.whole

    def at(self, share: float) -> float:
        """A percentile in milliseconds."""
        return sorted(self.each)[min(len(self.each) - 1, int(len(self.each) * share))] * 1e3


def closed_loop(connections: list[Connection], requests: Iterable[bytes], check: int = 0) -> Times:
    """Every connection takes the next request when its last one is answered. Raises RuntimeError on a refusal.

    `check` is the only good status; 0 = any below 300."""
    left, times = iter(requests), Times()
    began = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            _next(connection, left, selector)
        while selector.get_map():
            ready = selector.select(PATIENCE)
            if not ready:
                raise RuntimeError(f"no answer for {PATIENCE:.0f} s")
            for key, _ in ready:
                found = key.data.answer()
                if found is None:
                    continue
                times.each.append(time.perf_counter() - key.data.began)
                if found[0] != check if check else found[0] >= 300:
                    raise RuntimeError(f"refused: {found[0]} {found[1][:300]!r}")
                _next(key.data, left, selector)
    times.whole = time.perf_counter() - began
    return times


def _next(connection: Connection, left: Iterator[bytes], selector: selectors.BaseSelector) -> None:
    """The connection's next request; without one it is done."""
    data = next(left, None)
    if data is None:
        selector.unregister(connection)
    else:
        connection.send(data)


def one(connection: Connection, data: bytes) -> tuple[float, bytes]:
    """One request: seconds, body."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        connection.send(data)
        while selector.select(PATIENCE):
            found = connection.answer()
            if found is not None:
                took = time.perf_counter() - connection.began
                if found[0] >= 300:
                    raise RuntimeError(f"refused: {found[0]} {found[1][:300]!r}")
                return took, found[1]
    raise RuntimeError(f"no answer for {PATIENCE:.0f} s")


def news(
    watchers: list[Connection], writer: Connection, writes: Iterable[bytes], seen: Callable[[bytes], int]
) -> list[float]:
    """Send one write after the other; seconds from each to the moment at which each watcher has its line.

    `seen` counts the lines in a piece of a watch's stream."""
    waits: list[float] = []
    with selectors.DefaultSelector() as selector:
        for watcher in watchers:
            selector.register(watcher, selectors.EVENT_READ, watcher)
        selector.register(writer, selectors.EVENT_READ, writer)
        for data in writes:
            missing, answered = len(watchers), False
            writer.send(data)
            while missing or not answered:
                ready = selector.select(PATIENCE)
                if not ready:
                    raise RuntimeError(f"{missing} of {len(watchers)} watchers heard nothing for {PATIENCE:.0f} s")
                for key, _ in ready:
                    if key.data is writer:
                        answered = _accepted(writer) or answered
                        continue
                    count = seen(key.data.arrived())
                    if count:
                        waits.append(time.perf_counter() - writer.began)
                        missing -= count
    return waits


def _accepted(writer: Connection) -> bool:
    """Whether the write has been answered. Raises RuntimeError on a refusal."""
    found = writer.answer()
    if found is not None and found[0] != 201:
        raise RuntimeError(f"refused: {found[0]} {found[1][:300]!r}")
    return found is not None
