"""Ports of this machine's loopback in the pods' network: the API server's, and those that the owner has opened to pods
(`up --host-ports`). Connections to an address there are carried to the port, byte by byte.

TLS goes through unopened, so the API server asks for tokens as it does of everybody. Pods can hold only so many connections: they
all come from loopback, where the owner's own must find room.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

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
        connect: "Callable[[], Awaitable[Streams]] | None" = None,
        per_peer: int = 0,
    ) -> None:
        """`connect` makes a connection to the other side, which else is `port` of `host`; `per_peer`: how many one address may
        hold, 0 = `MAX_PER_POD`."""
        self._listener, self._per_peer = listener, per_peer
        self._connect = connect or partial(asyncio.open_connection, host, port)
        self._open: Counter[str] = Counter()

    @property
    def open_connections(self) -> int:
        """Of all pods."""
        return self._open.total()

    async def run(self) -> None:
        self._listener.setblocking(False)
        # It serves from within the block: who is cancelled while it begins leaves nobody listening.
        server = await asyncio.start_server(self._serve, sock=self._listener, start_serving=False)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pod = str((writer.get_extra_info("peername") or ("",))[0])
        if self._open.total() >= MAX_CONNECTIONS or self._open[pod] >= (self._per_peer or MAX_PER_POD):
            return await _close(writer)
        self._open[pod] += 1
        try:
            with contextlib.suppress(OSError):
                server_reader, server_writer = await self._connect()
                await carry_both_ways((reader, writer), (server_reader, server_writer))
        finally:
            await _close(writer)
            self._open[pod] -= 1
            if not self._open[pod]:
                del self._open[pod]


def is_api_server(host: str, port: int) -> bool:
    """Is this how pods call the API server?"""
    return (host, port) == (netns.GATEWAY, netns.API_PORT)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def carry_both_ways(pod: Streams, server: Streams) -> None:
    """Bytes between a pod and the server, until one side has ended."""
    directions = [
        asyncio.ensure_future(_carry(pod[0], server[1])),
        asyncio.ensure_future(_carry(server[0], pod[1])),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        await _close(server[1])


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # the other side has gone before
        await writer.wait_closed()
