"""exec, attach and port-forward on a real cluster: relays a client's websocket to one of the API server.

Messages are relayed unchanged both ways, with back-pressure. A refusal of the API server is returned to the client with its code and
message.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote, urlsplit

import msgspec
from starlette.types import Receive, Scope, Send
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from rowlock.errors import ApiError, Unauthorized, Unavailable, Unsupported, from_status
from rowlock.kube.config import ClientConfig
from rowlock.kube.connection import Connection
from rowlock.kube.users.user_connection import UserConnection

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
CLOSE_CHANNEL = 255
"""The channel on which v5 closes another channel. Older versions do not have it."""
MAX_MESSAGE_BYTES = 16 << 20
"""Maximum size of a fragmented message from the cluster; a larger one ends the stream."""
_OUTCOME_CHANNEL = b"\x03"
"""The channel with the Status of an exec's program."""
_CHUNK = 1 << 16
_MAX_REFUSAL_BYTES = 1 << 16
_HANDSHAKE_TIMEOUT_S = 30.0


class ClusterWebSocket:
    """A websocket to the API server. Made by `open`; `close` when done."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._websocket = WSConnection(ConnectionType.CLIENT)
        self.version = ""
        """The protocol that the API server chose."""

    @classmethod
    async def open(cls, connection: Connection | UserConnection, target: str, versions: Sequence[str]) -> Self:
        """Open a stream; after a 401 once more, with renewed credentials. Raises ApiError: the API server's error, or Unavailable if it
        cannot be reached."""
        config = await connection.client_config()
        try:
            return await cls._open_as(config, target, versions)
        except Unauthorized:
            return await cls._open_as(await connection.client_config(refused=config), target, versions)

    @classmethod
    async def _open_as(cls, config: ClientConfig, target: str, versions: Sequence[str]) -> Self:
        if config.proxy:
            raise Unsupported(
                "exec, attach and port-forward do not go through the proxy of the kubeconfig: use kubectl"
            )
        server = urlsplit(config.server)
        is_encrypted = server.scheme == "https"
        tls = (
            (config.tls if isinstance(config.tls, ssl.SSLContext) else ssl.create_default_context())
            if is_encrypted
            else None
        )
        name = (config.tls_name or server.hostname) if is_encrypted else None
        try:
            async with asyncio.timeout(_HANDSHAKE_TIMEOUT_S):
                port = server.port or (443 if is_encrypted else 80)
                reader, writer = await asyncio.open_connection(server.hostname, port, ssl=tls, server_hostname=name)
                websocket = cls(reader, writer)
                try:
                    await websocket._shake_hands(config, server.netloc, server.path + target, versions)
                except BaseException:
                    writer.close()
                    raise
                return websocket
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"the API server cannot be reached: {error or 'no answer in time'}") from error

    async def _shake_hands(self, config: ClientConfig, host: str, target: str, versions: Sequence[str]) -> None:
        headers = [(b"authorization", f"Bearer {config.token}".encode())] if config.token else []
        request = Request(host=host, target=target, subprotocols=list(versions), extra_headers=headers)
        self._writer.write(self._websocket.send(request))
        code, body = 0, b""
        while True:
            data = await self._reader.read(_CHUNK)
            self._websocket.receive_data(data or None)
            for event in self._websocket.events():
                if isinstance(event, AcceptConnection):
                    self.version = event.subprotocol or ""
                    return
                if isinstance(event, RejectConnection):
                    code = event.status_code
                elif isinstance(event, RejectData):
                    body = (body + event.data)[:_MAX_REFUSAL_BYTES]
                    if event.body_finished:
                        raise _refusal(code, body)
            if not data:
                raise _refusal(code, body)

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the API server's messages until it ends the stream."""
        partial = b""
        while True:
            for event in self._websocket.events():
                if isinstance(event, BytesMessage | TextMessage):
                    partial += event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
                    if len(partial) > MAX_MESSAGE_BYTES:
                        return
                    if event.message_finished:
                        yield partial
                        partial = b""
                elif isinstance(event, Ping):
                    self._writer.write(self._websocket.send(event.response()))
                elif isinstance(event, CloseConnection):
                    return
            data = await self._reader.read(_CHUNK)
            if not data:
                return
            self._websocket.receive_data(data)

    async def send(self, message: bytes) -> None:
        """Send a message; waits while the API server does not read. Raises OSError if the connection is lost."""
        self._writer.write(self._websocket.send(BytesMessage(data=message)))
        await self._writer.drain()

    async def close(self) -> None:
        """Send a close frame and close the connection."""
        with suppress(Exception):  # wsproto may refuse the frame after the peer's, and the socket may be gone
            self._writer.write(self._websocket.send(CloseConnection(code=1000)))
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def _refusal(code: int, body: bytes) -> ApiError:
    try:
        status: Any = msgspec.json.decode(body)
    except ValueError:  # msgspec.DecodeError, or not UTF-8
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body[:300].decode(errors="replace").strip()
        status = {
            "message": f"the API server did not open the stream (HTTP {code or 'none'}): {text or 'no reason given'}"
        }
    return from_status(status, code or 502)


async def relay_stream(connection: Connection | UserConnection, scope: Scope, receive: Receive, send: Send) -> None:
    """Relay one websocket request to the API server until either side ends it. Raises ApiError before the request is accepted."""
    offers = list(scope.get("subprotocols") or ())
    target = f"{quote(scope['path'])}?{scope['query_string'].decode('latin-1')}"
    is_forward = scope["path"].endswith("/portforward")
    versions = [*offers, *([V4] if is_forward and V4 not in offers else [])]  # API servers forward ports by v4 only
    cluster = await ClusterWebSocket.open(connection, target, versions)
    try:
        await send({"type": "websocket.accept", "subprotocol": offers[0] if offers else None})
        refused = asyncio.create_task(_wait_until_refused(connection))
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_carry_to_client(cluster, send)),
            asyncio.create_task(_carry_to_cluster(cluster, receive, knows_close=cluster.version == V5)),
            refused,
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OSError, RuntimeError):  # the client may be gone
            if refused in done and not is_forward:
                outcome = Unauthorized(refused.result()).status()
                await send({"type": "websocket.send", "bytes": _OUTCOME_CHANNEL + msgspec.json.encode(outcome)})
            await send({"type": "websocket.close", "code": 1000})
    finally:
        await cluster.close()


async def _wait_until_refused(connection: Connection | UserConnection) -> str:
    """Wait until a user's token is no longer valid, and return the error message. Never returns for the owner."""
    if isinstance(connection, UserConnection):
        return await connection.wait_until_refused()
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def _carry_to_client(cluster: ClusterWebSocket, send: Send) -> None:
    async for message in cluster.messages():
        await send({"type": "websocket.send", "bytes": message})


async def _carry_to_cluster(cluster: ClusterWebSocket, receive: Receive, *, knows_close: bool) -> None:
    while (event := await receive())["type"] != "websocket.disconnect":
        text = event.get("text")
        message = text.encode() if text is not None else event.get("bytes") or b""
        if message and (knows_close or message[0] != CLOSE_CHANNEL):
            await cluster.send(message)
