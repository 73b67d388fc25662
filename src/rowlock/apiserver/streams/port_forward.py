"""port-forward: TCP connections into a pod over one websocket, in the protocols that clients use.

    SPDY/3.1+portforward.k8s.io    kubectl: any number of connections, each a pair of streams (`spdy.py`)
    v4.channel.k8s.io              the Python client: one connection per port of the query, a pair of channels each
    none                           kr8s: the same
    v5.channel.k8s.io              `rowlock port-forward`: the same, and either side may half-close

A connection whose pod does not read holds at most `MAX_QUEUED_PIECES` in memory; then the client has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.types import Receive, Send

from rowlock import objects
from rowlock.apiserver.streams import spdy
from rowlock.apiserver.streams.websockets import CLOSE, StreamingRuntime, WebSocketChannels
from rowlock.errors import ApiError, BadRequest
from rowlock.objects import Object

TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
CHUNK_SIZE = 1 << 15
MAX_QUEUED_PIECES = 32
"""The most messages that wait for a pod that does not read."""
MAX_CONNECTIONS = 512
"""The most connections at a time through one websocket."""

SendPiece = Callable[[bytes], Awaitable[None]]


class ForwardedConnection:
    """One TCP connection into a pod. `feed_data` passes it the client's bytes; b"" = end of data."""

    def __init__(self, streaming_runtime: StreamingRuntime, pod: Object, port: int) -> None:
        self._streaming_runtime, self._pod_key, self._port = streaming_runtime, objects.key(pod), port
        self._uid = objects.uid(pod)
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_PIECES)

    async def feed_data(self, piece: bytes) -> None:
        """Queue data for the pod; waits while the queue is full."""
        await self._pieces.put(piece)

    async def run(self, send_piece: SendPiece) -> str:
        """Copy in both directions until the pod closes; return an error message, or ""."""
        try:
            connection = await self._streaming_runtime.dial(self._pod_key, self._port)
        except (ApiError, OSError, TimeoutError) as error:
            return self._error_message(error)
        reader, writer = await asyncio.open_connection(sock=connection)
        sending = asyncio.create_task(self._send(writer))
        try:
            while piece := await reader.read(CHUNK_SIZE):
                await send_piece(piece)
        except OSError as error:
            return self._error_message(error)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return ""

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the reading side detects that the connection has ended
            while piece := await self._pieces.get():
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        while True:  # discard further data
            await self._pieces.get()

    def _error_message(self, error: Exception) -> str:
        cause = error.message if isinstance(error, ApiError) else _failure_message(error, self._port)
        return f"error forwarding port {self._port} to pod {self._pod_key.name}, uid {self._uid}: {cause}"


def _failure_message(error: Exception, port: int) -> str:
    if isinstance(error, ConnectionRefusedError):
        words = "connection refused"
    else:
        words = "i/o timeout" if isinstance(error, TimeoutError) else str(error)
    return f"failed to connect to localhost:{port} inside the pod: {words}"


class Tunnel:
    """kubectl's protocol: SPDY frames in binary messages."""

    def __init__(self, receive: Receive, send: Send, streaming_runtime: StreamingRuntime, pod: Object) -> None:
        self._send = send
        self._streaming_runtime, self._pod = streaming_runtime, pod
        self._spdy = spdy.SpdyConnection(receive, send)
        self._error_streams: dict[str, int] = {}
        """`requestid` of a connection → its error stream, until its data stream is opened."""
        self._connections: dict[int, tuple[ForwardedConnection, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        await self._send({"type": "websocket.accept", "subprotocol": TUNNEL_PROTOCOL})
        try:
            while (frames := await self._spdy.receive()) is not None:
                for frame in frames:
                    if frame.kind == spdy.GOAWAY:
                        return await self._close(1000, "")
                    await self._handle_frame(frame)
        except spdy.SpdyError as error:
            await self._close(1002, f"this is not SPDY/3.1: {error}"[:120])
        finally:
            tasks = [task for _, task in self._connections.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _handle_frame(self, frame: spdy.SpdyFrame) -> None:
        if frame.kind == spdy.SYN_STREAM:
            await self._open_stream(frame.stream, frame.headers)
        elif frame.stream in self._connections and frame.kind == spdy.DATA:
            connection = self._connections[frame.stream][0]
            if frame.data:
                await connection.feed_data(frame.data)
            if frame.last:
                await connection.feed_data(b"")
        elif frame.stream in self._connections and frame.kind == spdy.RST_STREAM:
            self._connections.pop(frame.stream)[1].cancel()

    async def _open_stream(self, stream: int, headers: Mapping[str, str]) -> None:
        """Accept or refuse a stream. A connection is an error stream and a data stream with the same `requestid`."""
        kind, port = headers.get("streamtype"), headers.get("port", "")
        request_id = headers.get("requestid") or port
        accepted = kind in ("error", "data") and objects.is_digits(port) and 0 < int(port) < 65536
        accepted = accepted and len(self._connections) + len(self._error_streams) < MAX_CONNECTIONS
        await self._spdy.answer_open(stream, accepted=accepted)
        if not accepted:
            return
        if kind == "error":
            self._error_streams[request_id] = stream
            return
        connection = ForwardedConnection(self._streaming_runtime, self._pod, int(port))
        task = asyncio.create_task(self._run_connection(connection, stream, self._error_streams.pop(request_id, 0)))
        self._connections[stream] = connection, task

    async def _run_connection(self, connection: ForwardedConnection, stream: int, error_stream: int) -> None:
        with contextlib.suppress(OSError):  # the client has disconnected
            sentence = await connection.run(lambda piece: self._spdy.send(spdy.encode_data(stream, piece)))
            if error_stream:
                await self._spdy.send(spdy.encode_data(error_stream, sentence.encode(), last=True))
            await self._spdy.send(spdy.encode_data(stream, b"", last=True))
        self._connections.pop(stream, None)


async def serve_channels(
    query: bytes, socket: WebSocketChannels, streaming_runtime: StreamingRuntime, pod: Object
) -> None:
    """The Python client's protocol: channels 2i (data) and 2i+1 (errors), each beginning with its port in two bytes."""
    ports = ports_of(query)
    await socket.accept()
    connections = [ForwardedConnection(streaming_runtime, pod, port) for port in ports]
    for channel, port in enumerate(port for port in ports for _ in range(2)):
        await socket.send(channel, struct.pack("<H", port))
    serving = asyncio.create_task(_serve_connections(socket, connections))
    listening = asyncio.create_task(_listen(socket, connections))
    try:
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await socket.close()
    finally:
        for task in (serving, listening):
            task.cancel()
        await asyncio.gather(serving, listening, return_exceptions=True)


async def _serve_connections(socket: WebSocketChannels, connections: list[ForwardedConnection]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number, connection in enumerate(connections):
            tasks.create_task(_serve_channel(socket, connection, 2 * number))


async def _serve_channel(socket: WebSocketChannels, connection: ForwardedConnection, channel: int) -> None:
    async def send_piece(piece: bytes) -> None:
        await socket.send(channel, piece)

    if sentence := await connection.run(send_piece):
        await socket.send(channel + 1, sentence.encode())


async def _listen(socket: WebSocketChannels, connections: list[ForwardedConnection]) -> None:
    while (message := await socket.receive()) is not None:
        channel, data = message
        if channel == CLOSE and data and data[0] % 2 == 0 and data[0] // 2 < len(connections):
            await connections[data[0] // 2].feed_data(b"")
        elif data and channel % 2 == 0 and channel // 2 < len(connections):
            await connections[channel // 2].feed_data(data)


def ports_of(query: bytes) -> list[int]:
    """The ports in the query. Raises BadRequest."""
    port_texts = [part for k, v in parse_qsl(query.decode("latin-1")) if k == "ports" for part in v.split(",")]
    if not port_texts:
        raise BadRequest('query parameter "ports" is required')
    for port in port_texts:
        if not objects.is_digits(port) or not 0 < int(port) < 65536:
            raise BadRequest(f'unable to parse "{port}" as a port: a number between 1 and 65535')
    if len(port_texts) > 100:
        raise BadRequest("at most 100 ports go through one websocket")
    return [int(port) for port in port_texts]
