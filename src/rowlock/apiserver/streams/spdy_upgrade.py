"""What older clients of client-go speak instead of websockets: SPDY/3.1 on the connection itself, after an HTTP upgrade.

`UpgradedConnection` makes the raw connection look like a websocket whose messages are pieces of the byte stream, so port-forward
is served by the same code as inside a websocket. `SpdyChannels` does for exec and attach what `WebSocketChannels` does: a
channel is a stream whose `streamtype` header says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rowlock.apiserver.http.requests import Call
from rowlock.apiserver.http.responses import encode
from rowlock.apiserver.streams import port_forward, spdy
from rowlock.apiserver.streams.websockets import (  # fmt: skip
    CLOSE,
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    V4,
    ExecOptions,
    StreamingRuntime,
    negotiate_protocol,
    open_session,
    parse_exec_options,
    serve_session,
)
from rowlock.objects import Object

PROTOCOL = "SPDY/3.1"
VERSION_HEADER = b"x-stream-protocol-version"
FORWARD_PROTOCOL = "portforward.k8s.io"
HIGH_WATER = 1 << 18
"""Bytes that may wait here for who reads them, before the client is made to wait."""
_STREAM_TYPES = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "resize": RESIZE}


class UpgradedConnection(asyncio.Protocol):
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
        if self._transport is not None and self._size <= HIGH_WATER and not self._lost:
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
        if self._size > HIGH_WATER and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._writable.set()
        self._pieces.put_nowait(b"")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class SpdyChannels:
    """One stream per channel; see `WebSocketChannels` for what each of these is."""

    def __init__(self, connection: UpgradedConnection, options: ExecOptions) -> None:
        self._connection, self._framer = connection, spdy.Framer()
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
        await self._connection.send({"type": "websocket.accept"})
        while self._awaited:
            if not await self._read():
                raise ConnectionResetError("the client has gone")

    async def send(self, channel: int, data: bytes) -> None:
        await self._connection.send({"type": "websocket.send", "bytes": spdy.encode_data(self._streams[channel], data)})

    async def receive(self) -> tuple[int, bytes] | None:
        while not self._events:
            if not await self._read():
                return None
        return self._events.pop(0)

    async def finish(self, status: dict[str, Any]) -> None:
        frames = [spdy.encode_data(self._streams[ERROR], encode(status), last=True)]
        frames += [spdy.encode_data(s, b"", last=True) for c, s in self._streams.items() if c in (STDOUT, STDERR)]
        await self._connection.send({"type": "websocket.send", "bytes": b"".join(frames)})
        while await self._read():  # the client closes when it has read everything
            self._events.clear()

    async def _read(self) -> bool:
        """One piece of the client's; False when it has gone."""
        message = await self._connection.receive()
        if message["type"] == "websocket.disconnect":
            return False
        try:
            for frame in self._framer.parse_frames(message["bytes"]):
                if isinstance(frame, spdy.GoAwayFrame):
                    return False
                await self._handle_frame(frame)
        except spdy.SpdyError:
            return False
        return True

    async def _handle_frame(self, frame: spdy.Frame) -> None:
        if isinstance(frame, spdy.SynStreamFrame):
            channel = _STREAM_TYPES.get(frame.headers.get("streamtype", ""), -1)
            expected = channel in self._awaited
            reply = self._framer.encode_syn_reply(frame.stream) if expected else spdy.encode_rst_stream(frame.stream)
            await self._connection.send({"type": "websocket.send", "bytes": reply})
            if expected:
                self._awaited.discard(channel)
                self._streams[channel] = frame.stream
        elif isinstance(frame, spdy.PingFrame):
            await self._connection.send({"type": "websocket.send", "bytes": spdy.encode_ping(frame.number)})
        elif isinstance(frame, spdy.DataFrame):
            channel = next((c for c, s in self._streams.items() if s == frame.stream), ERROR)
            self._queue_input(channel, frame)

    def _queue_input(self, channel: int, frame: spdy.DataFrame) -> None:
        if channel == RESIZE:  # one size after the other, cut anywhere
            *sizes, self._partial_size = (self._partial_size + frame.data).replace(b"}", b"}\n").split(b"\n")
            self._events += [(RESIZE, size) for size in sizes if size.strip()]
        elif channel == STDIN:
            if frame.data:
                self._events.append((STDIN, frame.data))
            if frame.last:
                self._events.append((CLOSE, bytes((STDIN,))))


async def serve(call: Call, subresource: str, runtime: StreamingRuntime, pod: Object) -> None:
    """Serves one upgraded connection to its end. Raises ApiError before the upgrade."""
    scope, forwards = call.upgrade_scope, subresource == "portforward"
    options = None if forwards else parse_exec_options(scope["query_string"])
    headers = [value.decode("latin-1") for name, value in scope["headers"] if name == VERSION_HEADER]
    offered = [word.strip() for header in headers for word in header.split(",")]
    version = negotiate_protocol(offered, [FORWARD_PROTOCOL if forwards else V4], "X-Stream-Protocol-Version")
    connection = UpgradedConnection(scope["extensions"]["rowlock.take_over"]["call"], version)
    try:
        if options is None:
            port_forward.check_running(pod)
            await port_forward.Tunnel(connection.receive, connection.send, runtime, pod).run()
        else:
            await serve_session(
                SpdyChannels(connection, options), open_session(call.path, runtime, pod, options), options
            )
    except OSError:
        return  # the client has gone
    finally:
        connection.finish()
