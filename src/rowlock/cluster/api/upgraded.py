"""What older clients of client-go speak instead of websockets: SPDY/3.1 on the connection itself, after an HTTP upgrade.

`Upgraded` makes the raw connection look like a websocket whose messages are pieces of the byte stream, so port-forward
is served by the same code as inside a websocket. `Streams` does for exec and attach what `streaming.Socket` does: a
channel is a stream whose `streamtype` header says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rowlock.cluster.api import forwarding, spdy
from rowlock.cluster.api.answers import encode
from rowlock.cluster.api.requests import Call
from rowlock.cluster.api.streaming import (
    CLOSE,
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    V4,
    Entrance,
    Wishes,
    opened,
    served,
    wishes,
)  # fmt: skip
from rowlock.errors import BadRequest
from rowlock.objects import Object

PROTOCOL = "SPDY/3.1"
VERSION = b"x-stream-protocol-version"
HIGH = 1 << 18
"""Bytes that may wait here for who reads them, before the client is made to wait."""
_NAMES = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "resize": RESIZE}


class Upgraded(asyncio.Protocol):
    """The connection after its upgrade, with the two ends of an ASGI websocket."""

    def __init__(self, take_over: Callable[[asyncio.Protocol], asyncio.Transport], version: str) -> None:
        self._take_over, self._version = take_over, version
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0
        self._lost = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    async def receive(self) -> dict[str, Any]:
        """The next piece; a disconnect when the client has gone."""
        piece = await self._pieces.get()
        if not piece:
            self._pieces.put_nowait(b"")
            return {"type": "websocket.disconnect", "code": 1006}
        self._size -= len(piece)
        if self._transport is not None and self._size <= HIGH and not self._lost:
            self._transport.resume_reading()
        return {"type": "websocket.receive", "bytes": piece}

    async def send(self, message: Any) -> None:
        """Accept, send and close, as of a websocket. Raises OSError when the client has gone."""
        if message["type"] == "websocket.accept":
            self._transport = self._take_over(self)
            lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", f"Upgrade: {PROTOCOL}"]
            lines.append(f"X-Stream-Protocol-Version: {self._version}")
            self._transport.write("\r\n".join([*lines, "", ""]).encode())
        elif self._transport is None or self._lost:
            raise ConnectionResetError("the client has gone")
        elif message["type"] == "websocket.close":
            self._transport.close()
        else:
            await self._writable.wait()
            self._transport.write(message["bytes"])

    def finish(self) -> None:
        """Whatever happened: nothing stays open."""
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------ asyncio's side

    def data_received(self, data: bytes) -> None:
        self._pieces.put_nowait(data)
        self._size += len(data)
        if self._size > HIGH and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._writable.set()
        self._pieces.put_nowait(b"")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class Streams:
    """One stream per channel; see `streaming.Socket` for what each of these is."""

    def __init__(self, wire: Upgraded, asked: Wishes) -> None:
        self._wire, self._spdy = wire, spdy.Connection()
        wanted = {STDIN: asked.stdin, STDOUT: asked.stdout, STDERR: asked.stderr and not asked.tty, RESIZE: asked.tty}
        self._missing = {ERROR, *(channel for channel, yes in wanted.items() if yes)}
        self._streams: dict[int, int] = {}
        self._events: list[tuple[int, bytes]] = []
        self._rest = b""

    async def accept(self) -> None:
        """The upgrade, and every stream that is needed."""
        await self._wire.send({"type": "websocket.accept"})
        while self._missing:
            if not await self._read():
                raise ConnectionResetError("the client has gone")

    async def send(self, channel: int, data: bytes) -> None:
        await self._wire.send({"type": "websocket.send", "bytes": spdy.data(self._streams[channel], data)})

    async def receive(self) -> tuple[int, bytes] | None:
        while not self._events:
            if not await self._read():
                return None
        return self._events.pop(0)

    async def finish(self, status: dict[str, Any]) -> None:
        frames = [spdy.data(self._streams[ERROR], encode(status), last=True)]
        frames += [spdy.data(s, b"", last=True) for c, s in self._streams.items() if c in (STDOUT, STDERR)]
        await self._wire.send({"type": "websocket.send", "bytes": b"".join(frames)})
        while await self._read():  # the client closes when it has read everything
            self._events.clear()

    async def _read(self) -> bool:
        """One piece of the client's; False when it has gone."""
        message = await self._wire.receive()
        if message["type"] == "websocket.disconnect":
            return False
        try:
            for event in self._spdy.receive(message["bytes"]):
                if isinstance(event, spdy.GoAway):
                    return False
                await self._heard(event)
        except spdy.Broken:
            return False
        return True

    async def _heard(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.Opened):
            channel = _NAMES.get(event.headers.get("streamtype", ""), -1)
            known = channel in self._missing
            frame = self._spdy.reply(event.stream) if known else spdy.reset(event.stream)
            await self._wire.send({"type": "websocket.send", "bytes": frame})
            if known:
                self._missing.discard(channel)
                self._streams[channel] = event.stream
        elif isinstance(event, spdy.Ping):
            await self._wire.send({"type": "websocket.send", "bytes": spdy.pong(event.number)})
        elif isinstance(event, spdy.Data):
            channel = next((c for c, s in self._streams.items() if s == event.stream), ERROR)
            self._took(channel, event)

    def _took(self, channel: int, event: spdy.Data) -> None:
        if channel == RESIZE:  # one size after the other, cut anywhere
            *whole, self._rest = (self._rest + event.data).replace(b"}", b"}\n").split(b"\n")
            self._events += [(RESIZE, size) for size in whole if size.strip()]
        elif channel == STDIN:
            if event.data:
                self._events.append((STDIN, event.data))
            if event.last:
                self._events.append((CLOSE, bytes((STDIN,))))


def version_of(headers: list[tuple[bytes, bytes]], known: tuple[str, ...]) -> str:
    """The stream protocol that both sides speak. Raises BadRequest."""
    offered = [
        word.strip() for name, value in headers if name == VERSION for word in value.decode("latin-1").split(",")
    ]
    for version in known:
        if version in offered:
            return version
    wanted = " or ".join(known)
    raise BadRequest(f"the upgrade needs an X-Stream-Protocol-Version of {wanted}, not {', '.join(offered) or 'none'}")


async def serve(call: Call, subresource: str, entrance: Entrance, pod: Object) -> None:
    """Serves one upgraded connection to its end. Raises ApiError before the upgrade."""
    forwards = subresource == "portforward"
    asked = None if forwards else wishes(call.upgrade["query_string"])
    wire = Upgraded(
        call.upgrade["extensions"]["rowlock.take_over"]["call"],
        version_of(call.upgrade["headers"], FORWARD if forwards else EXEC),
    )
    try:
        if asked is None:
            forwarding.check(pod)
            await forwarding.Tunnel(wire.receive, wire.send, entrance, pod).run()
        else:
            await served(Streams(wire, asked), opened(call.path, entrance, pod, asked), asked)
    except OSError:
        return  # the client has gone
    finally:
        wire.finish()


EXEC, FORWARD = (V4,), ("portforward.k8s.io",)
