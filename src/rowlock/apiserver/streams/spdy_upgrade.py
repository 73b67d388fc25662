"""What older clients of client-go speak instead of websockets: SPDY/3.1 on the connection itself, after an HTTP upgrade.

`UpgradedConnection` makes the raw connection look like a websocket whose messages are pieces of the byte stream, so port-forward
is served by the same code as inside a websocket. `SpdyChannels` does for exec and attach what `WebSocketChannels` does: a
channel is a stream whose `streamtype` header says which.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from rowlock.apiserver.http.responses import encode
from rowlock.apiserver.streams import spdy
from rowlock.apiserver.streams.websockets import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, ExecOptions

PROTOCOL = "SPDY/3.1"
VERSION_HEADER = b"x-stream-protocol-version"
FORWARD_PROTOCOL = "portforward.k8s.io"
STREAM_CREATION_TIMEOUT = 30.0
"""Seconds in which a client opens its streams, as of a real API server."""
GOODBYE_TIMEOUT = 5.0
"""Seconds that a client has to close the connection after the last word."""
HIGH_WATER = 1 << 18
"""Bytes that may wait here for who reads them, before the client is made to wait."""
_STREAM_TYPES = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "resize": RESIZE}


class UpgradedConnection:
    """The connection after its upgrade, with the two ends of an ASGI websocket."""

    def __init__(self, take_over: Callable[[asyncio.Protocol], asyncio.Transport], version: str) -> None:
        self._take_over, self._version = take_over, version
        self._reader = asyncio.StreamReader(HIGH_WATER // 2)  # it pauses the client at twice its limit
        self._writer: asyncio.StreamWriter | None = None

    async def receive(self) -> dict[str, Any]:
        """The next piece; a disconnect when the client has gone."""
        with contextlib.suppress(OSError):
            if piece := await self._reader.read(HIGH_WATER):
                return {"type": "websocket.receive", "bytes": piece}
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: Any) -> None:
        """Accept, send and close, as of a websocket. Raises OSError when the client has gone."""
        if message["type"] == "websocket.accept":
            protocol = asyncio.StreamReaderProtocol(self._reader)
            transport = self._take_over(protocol)
            protocol.connection_made(transport)
            self._writer = asyncio.StreamWriter(transport, protocol, self._reader, asyncio.get_running_loop())
            lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", f"Upgrade: {PROTOCOL}"]
            lines.append(f"X-Stream-Protocol-Version: {self._version}")
            self._writer.write("\r\n".join([*lines, "", ""]).encode())
        elif self._writer is None:
            raise ConnectionResetError("the client has gone")
        elif message["type"] == "websocket.close":
            self._writer.close()
        else:
            self._writer.write(message["bytes"])
            await self._writer.drain()

    def finish(self) -> None:
        """Whatever happened: nothing stays open."""
        if self._writer is not None:
            self._writer.close()


class SpdyChannels:
    """One stream per channel; see `WebSocketChannels` for what each of these is."""

    def __init__(self, receive: Receive, send: Send, options: ExecOptions) -> None:
        self._send, self._spdy = send, spdy.SpdyConnection(receive, send)
        requested = {
            STDIN: options.stdin,
            STDOUT: options.stdout,
            STDERR: options.stderr and not options.tty,
            RESIZE: options.tty,
        }
        self._awaited = {ERROR, *(channel for channel, yes in requested.items() if yes)}
        self._streams: dict[int, int] = {}
        self._events: list[tuple[int, bytes]] = []
        self._partial_size = b""

    async def accept(self) -> None:
        """The upgrade, and every stream that is needed."""
        await self._send({"type": "websocket.accept"})
        async with asyncio.timeout(STREAM_CREATION_TIMEOUT):
            while self._awaited:
                if not await self._read():
                    raise ConnectionResetError("the client has gone")

    async def send(self, channel: int, data: bytes) -> None:
        await self._spdy.send(spdy.encode_data(self._streams[channel], data))

    async def receive(self) -> tuple[int, bytes] | None:
        while not self._events:
            if not await self._read():
                return None
        return self._events.pop(0)

    async def finish(self, status: dict[str, Any]) -> None:
        frames = [spdy.encode_data(self._streams[ERROR], encode(status), last=True)]
        frames += [spdy.encode_data(s, b"", last=True) for c, s in self._streams.items() if c in (STDOUT, STDERR)]
        await self._spdy.send(b"".join(frames))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT):
                while await self._read():  # the client closes when it has read everything
                    self._events.clear()

    async def _read(self) -> bool:
        """One piece of the client's; False when it has gone."""
        try:
            frames = await self._spdy.receive()
        except spdy.SpdyError:
            return False
        for frame in frames or ():
            if frame.kind == spdy.SYN_STREAM:
                channel = _STREAM_TYPES.get(frame.headers.get("streamtype", ""), -1)
                if expected := channel in self._awaited:
                    self._awaited.discard(channel)
                    self._streams[channel] = frame.stream
                await self._spdy.answer_open(frame.stream, accepted=expected)
            elif frame.kind == spdy.DATA:
                self._queue_input(next((c for c, s in self._streams.items() if s == frame.stream), ERROR), frame)
        return frames is not None

    def _queue_input(self, channel: int, frame: spdy.SpdyFrame) -> None:
        if channel == RESIZE:  # one size after the other, cut anywhere
            *sizes, self._partial_size = (self._partial_size + frame.data).replace(b"}", b"}\n").split(b"\n")
            self._events += [(RESIZE, size) for size in sizes if size.strip()]
        elif channel == STDIN:
            if frame.data:
                self._events.append((STDIN, frame.data))
            if frame.last:
                self._events.append((CLOSE, bytes((STDIN,))))


def offered_protocols(scope: Scope) -> list[str]:
    """What the client can speak inside SPDY."""
    headers = [value.decode("latin-1") for name, value in scope["headers"] if name == VERSION_HEADER]
    return [word.strip() for header in headers for word in header.split(",")]
