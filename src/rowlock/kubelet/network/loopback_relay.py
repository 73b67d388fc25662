"""Ports of this machine's loopback in the pods' network: the API server's, and those that the owner has opened to pods
(`up --host-ports`). Connections to an address there are relayed to the port, byte by byte.

TLS passes through unopened, so the API server requires tokens as from every client. The connections of pods are limited: they all
come from loopback, where the owner's own must find room.
"""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable

from rowlock.kubelet.shim import netns

MAX_CONNECTIONS, MAX_PER_POD = 128, 16
_CHUNK = 64 * 1024


class LoopbackRelay:
    """Serves one listening socket until cancelled."""

    def __init__(
        self,
        listener: socket.socket,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        connect_for: "Callable[[str], Awaitable[Streams]] | None" = None,
        per_peer: int = 0,
        limit: int = 0,
    ) -> None:
        """`connect_for` connects to the other side for a client's address; without it, that is `port` of `host`. `per_peer`: most
        connections of one address, `limit`: of all; 0 = `MAX_PER_POD`, `MAX_CONNECTIONS`."""
        self._listener, self._per_peer, self._limit = listener, per_peer, limit
        self._waits_for_answer = connect_for is not None
        self._connect_for = connect_for or (lambda _: asyncio.open_connection(host, port))
        self._open: Counter[str] = Counter()

    @property
    def open_connections(self) -> int:
        """The number of open connections of all pods."""
        return self._open.total()

    async def run(self) -> None:
        self._listener.setblocking(False)
        # Starts serving inside the block: a task that is cancelled before leaves no listener open.
        server = await asyncio.start_server(self._serve, sock=self._listener, start_serving=False)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod = str((writer.get_extra_info("peername") or ("",))[0])
        if self._open.total() >= (self._limit or MAX_CONNECTIONS) or self._open[pod] >= (self._per_peer or MAX_PER_POD):
            return await _close(writer)
        self._open[pod] += 1
        try:
            try:
                server = await self._connect_for(pod)
            except OSError:
                return _refuse(writer)
            with contextlib.suppress(OSError):
                await carry_both_ways((reader, writer), server, waits_for_answer=self._waits_for_answer)
        finally:
            await _close(writer)
            self._open[pod] -= 1
            if not self._open[pod]:
                del self._open[pod]


def is_api_server(host: str, port: int) -> bool:
    """Whether this is the address by which pods reach the API server."""
    return (host, port) == (netns.GATEWAY, netns.API_PORT)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def carry_both_ways(pod: Streams, server: Streams, *, waits_for_answer: bool = False) -> None:
    """Copies bytes between a pod and the server until one side has ended; `waits_for_answer`: a client that closes only its own half
    still gets the server's answer."""
    directions = [
        asyncio.ensure_future(_carry(pod[0], server[1])),
        asyncio.ensure_future(_carry(server[0], pod[1])),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        if waits_for_answer and not directions[1].done() and directions[0].exception() is None:
            with contextlib.suppress(OSError):
                server[1].write_eof()
            await asyncio.wait(directions)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        await _close(server[1])


def _refuse(writer: asyncio.StreamWriter) -> None:
    """Makes the connection end with a reset, not with an empty answer: nothing answers behind it."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # the other side has closed it before
        await writer.wait_closed()
