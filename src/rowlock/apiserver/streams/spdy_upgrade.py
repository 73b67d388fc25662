"""SPDY/3.1 on the connection itself after an HTTP upgrade, which older client-go clients use instead of websockets.

`UpgradedConnection` presents the raw connection as a websocket whose messages are parts of the byte stream, so port-forward
uses the same code as inside a websocket. `SpdyChannels` is the counterpart of `WebSocketChannels` for exec and attach: the
`streamtype` header of a stream names its channel.
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
"""Seconds within which a client must open its streams, as on a real API server."""
GOODBYE_TIMEOUT = 5.0
"""Seconds that a client has to close the connection after the final status."""
HIGH_WATER = 1 << 18
"""Received bytes that are buffered before reading from the client pauses."""
_STREAM_TYPES = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "resize": RESIZE}


class UpgradedConnection:
    """The connection after its upgrade, with `receive` and `send` of an ASGI websocket."""

    def __init__(self, take_over: Callable[[asyncio.Protocol], asyncio.Transport], version: str) -> None:
        self._take_over, self._version = take_over, version
        self._reader = asyncio.StreamReader(HIGH_WATER // 2)  # StreamReader pauses at twice its limit
        self._writer: asyncio.StreamWriter | None = None

    async def receive(self) -> dict[str, Any]:
        """The next bytes as a websocket message; a disconnect message when the client has disconnected."""
        with contextlib.suppress(OSError):
            if piece := await self._reader.read(HIGH_WATER):
                return {"type": "websocket.receive", "bytes": piece}
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(self, message: Any) -> None:
        """Handle the websocket messages accept, send and close. Raises OSError when the client has disconnected."""
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
        """Close the connection, if it is open."""
        if self._writer is not None:
            self._writer.close()


class SpdyChannels:
    """Exec and attach with one SPDY stream per channel; see `WebSocketChannels` for the methods."""

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
        """Upgrade, and wait until the client has opened every stream that is needed."""
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
        """Process one message of the client; False when it has disconnected."""
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
        if channel == RESIZE:  # consecutive JSON objects, split anywhere
            *sizes, self._partial_size = (self._partial_size + frame.data).replace(b"}", b"}\n").split(b"\n")
            self._events += [(RESIZE, size) for size in sizes if size.strip()]
        elif channel == STDIN:
            if frame.data:
                self._events.append((STDIN, frame.data))
            if frame.last:
                self._events.append((CLOSE, bytes((STDIN,))))


def offered_protocols(scope: Scope) -> list[str]:
    """The subprotocols that the client offers for SPDY."""
    headers = [value.decode("latin-1") for name, value in scope["headers"] if name == VERSION_HEADER]
    return [word.strip() for header in headers for word in header.split(",")]
