"""port-forward: TCP connections into a pod over one websocket, in the two forms that clients use.

    SPDY/3.1+portforward.k8s.io    kubectl: any number of connections, each a pair of streams (`spdy.py`)
    v4.channel.k8s.io              the Python client: one connection per port of the query, a pair of channels each
    none                           kr8s: the same
    v5.channel.k8s.io              `rowlock port-forward`: the same, and either side may say that it has no more

A connection whose pod takes nothing holds at most a few pieces in memory; then the client waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from rowlock import objects
from rowlock.cluster.api import spdy
from rowlock.cluster.api.streaming import CLOSE, PLAIN, V4, V5, Entrance, Socket
from rowlock.errors import ApiError, BadRequest
from rowlock.objects import Object

TUNNEL = "SPDY/3.1+portforward.k8s.io"
CHUNK = 1 << 15
PIECES = 32
"""How many messages wait for a pod that does not take them."""
MOST_CONNECTIONS = 512
"""At a time through one websocket."""

Give = Callable[[bytes], Awaitable[None]]


class Forward:
    """One TCP connection into a pod. `take` gives it the client's bytes, b"" when no more come."""

    def __init__(self, entrance: Entrance, pod: Object, port: int) -> None:
        self._entrance, self._place, self._port = entrance, objects.key(pod), port
        self._uid = objects.uid(pod)
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(PIECES)

    async def take(self, piece: bytes) -> None:
        """Waits while the pod takes nothing."""
        await self._pieces.put(piece)

    async def run(self, give: Give) -> str:
        """Copies both ways until the pod closes; a sentence when there is nobody to connect to."""
        try:
            connection = await self._entrance.dial(self._place, self._port)
        except (ApiError, OSError, TimeoutError) as error:
            return self._why(error)
        reader, writer = await asyncio.open_connection(sock=connection)
        sending = asyncio.create_task(self._send(writer))
        try:
            while piece := await reader.read(CHUNK):
                await give(piece)
        except OSError as error:
            return self._why(error)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return ""

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # its end is seen by who reads
            while piece := await self._pieces.get():
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        while True:  # whatever comes now goes nowhere
            await self._pieces.get()

    def _why(self, error: Exception) -> str:
        cause = error.message if isinstance(error, ApiError) else _cause(error, self._port)
        return f"error forwarding port {self._port} to pod {self._place.name}, uid {self._uid}: {cause}"


def _cause(error: Exception, port: int) -> str:
    if isinstance(error, ConnectionRefusedError):
        words = "connection refused"
    else:
        words = "i/o timeout" if isinstance(error, TimeoutError) else str(error)
    return f"failed to connect to localhost:{port} inside the pod: {words}"


async def forward(scope: Scope, receive: Receive, send: Send, entrance: Entrance, pod: Object) -> None:
    """Serves one websocket. Raises ApiError before the handshake is done."""
    offered = scope.get("subprotocols") or []
    check(pod)
    if TUNNEL in offered:
        return await Tunnel(receive, send, entrance, pod).run()
    for version in (V5, V4, PLAIN):
        if version in (offered or [PLAIN]):
            return await _channels(scope, Socket(receive, send, version), entrance, pod)
    raise BadRequest(f"the websocket needs a Sec-WebSocket-Protocol of {TUNNEL} or {V4}, not {', '.join(offered)}")


def check(pod: Object) -> None:
    """Raises BadRequest when there is nothing to connect to."""
    if (phase := objects.phase(pod)) != "Running":
        raise BadRequest(f"unable to forward port because pod is not running. Current status={phase}")


class Tunnel:
    """kubectl's form: SPDY frames in binary messages."""

    def __init__(self, receive: Receive, send: Send, entrance: Entrance, pod: Object) -> None:
        self._receive, self._send = receive, send
        self._entrance, self._pod = entrance, pod
        self._spdy = spdy.Connection()
        self._errors: dict[str, int] = {}
        """Connection → the stream for what goes wrong, until its data stream is there."""
        self._forwards: dict[int, tuple[Forward, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        await self._send({"type": "websocket.accept", "subprotocol": TUNNEL})
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                for event in self._spdy.receive(message.get("bytes") or b""):
                    if isinstance(event, spdy.GoAway):
                        return await self._goodbye(1000, "")
                    await self._handle(event)
        except spdy.Broken as error:
            await self._goodbye(1002, f"this is not SPDY/3.1: {error}"[:120])
        finally:
            tasks = [task for _, task in self._forwards.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _goodbye(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def _give(self, frame: bytes) -> None:
        await self._send({"type": "websocket.send", "bytes": frame})

    async def _handle(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.Opened):
            await self._opened(event)
        elif isinstance(event, spdy.Ping):
            await self._give(spdy.pong(event.number))
        elif isinstance(event, spdy.Data) and event.stream in self._forwards:
            connection = self._forwards[event.stream][0]
            if event.data:
                await connection.take(event.data)
            if event.last:
                await connection.take(b"")
        elif isinstance(event, spdy.Reset) and event.stream in self._forwards:
            self._forwards.pop(event.stream)[1].cancel()

    async def _opened(self, event: spdy.Opened) -> None:
        """A connection is a stream for errors and one for data, with the same `requestid`."""
        headers, stream = event.headers, event.stream
        kind, port = headers.get("streamtype"), headers.get("port", "")
        whose = headers.get("requestid") or port
        known = kind in ("error", "data") and port.isdigit() and 0 < int(port) < 65536
        if not known or len(self._forwards) + len(self._errors) >= MOST_CONNECTIONS:
            return await self._give(spdy.reset(stream))
        await self._give(self._spdy.reply(stream))
        if kind == "error":
            self._errors[whose] = stream
            return
        connection = Forward(self._entrance, self._pod, int(port))
        task = asyncio.create_task(self._forward(connection, stream, self._errors.pop(whose, 0)))
        self._forwards[stream] = connection, task

    async def _forward(self, connection: Forward, stream: int, errors: int) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            sentence = await connection.run(lambda piece: self._give(spdy.data(stream, piece)))
            if errors:
                await self._give(spdy.data(errors, sentence.encode(), last=True))
            await self._give(spdy.data(stream, b"", last=True))
        self._forwards.pop(stream, None)


async def _channels(scope: Scope, socket: Socket, entrance: Entrance, pod: Object) -> None:
    """The Python client's form: channels 2i (data) and 2i+1 (errors), each begun by its port in two bytes."""
    ports = ports_of(scope["query_string"])
    await socket.accept()
    connections = [Forward(entrance, pod, port) for port in ports]
    for channel, port in enumerate(port for port in ports for _ in range(2)):
        await socket.send(channel, struct.pack("<H", port))
    serving = asyncio.create_task(_serve(socket, connections))
    listening = asyncio.create_task(_listen(socket, connections))
    try:
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await socket.close()
    finally:
        for task in (serving, listening):
            task.cancel()
        await asyncio.gather(serving, listening, return_exceptions=True)


async def _serve(socket: Socket, connections: list[Forward]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number, connection in enumerate(connections):
            tasks.create_task(_channel(socket, connection, 2 * number))


async def _channel(socket: Socket, connection: Forward, channel: int) -> None:
    async def give(piece: bytes) -> None:
        await socket.send(channel, piece)

    if sentence := await connection.run(give):
        await socket.send(channel + 1, sentence.encode())


async def _listen(socket: Socket, connections: list[Forward]) -> None:
    while (message := await socket.receive()) is not None:
        channel, data = message
        if channel == CLOSE and data and data[0] % 2 == 0 and data[0] // 2 < len(connections):
            await connections[data[0] // 2].take(b"")
        elif data and channel % 2 == 0 and channel // 2 < len(connections):
            await connections[channel // 2].take(data)


def ports_of(query: bytes) -> list[int]:
    """The ports of the query. Raises BadRequest."""
    given = [part for k, v in parse_qsl(query.decode("latin-1")) if k == "ports" for part in v.split(",")]
    if not given:
        raise BadRequest('query parameter "ports" is required')
    for port in given:
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise BadRequest(f'unable to parse "{port}" as a port: a number between 1 and 65535')
    if len(given) > 100:
        raise BadRequest("at most 100 ports go through one websocket")
    return [int(port) for port in given]
