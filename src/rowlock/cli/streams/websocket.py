"""A websocket to the server for exec, attach and port-forward: messages of a channel number and bytes.

Nothing here blocks: `pump` sends and receives what it can, and its caller uses `select` to know when to call it again. So
output is read while input cannot be written, and the two sides never wait for each other.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any

from rowlock.cli.client import ServerClient
from rowlock.cli.grammar import CommandError

SEND_HIGH_WATER = 1 << 18
"""Queued bytes above which a caller should queue no more."""
VERSION = "v5.channel.k8s.io"
CLOSE = 255


class WebSocket:
    """One connection. Raises CommandError with the server's sentence when it is not accepted."""

    def __init__(self, server: ServerClient, path: str, query: list[tuple[str, str]]) -> None:
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import Request

        self._connection = WSConnection(ConnectionType.CLIENT)
        self._send_buffer = self._partial_message = b""
        self.is_open = True
        self._socket = server.open_socket()
        target = f"{path}?{urllib.parse.urlencode(query)}"
        headers = [(b"authorization", f"Bearer {server.token()}".encode())]
        request = Request(host="127.0.0.1", target=target, subprotocols=[VERSION], extra_headers=headers)
        try:
            self._socket.sendall(self._connection.send(request))
            self._early_messages = self._handshake()
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def _handshake(self) -> list[tuple[int, bytes]]:
        """Wait until the server accepts. Returns messages that came with its answer. Raises CommandError when it refuses."""
        from wsproto.events import AcceptConnection, RejectConnection, RejectData

        messages: list[tuple[int, bytes]] = []
        accepted, status, body = False, 0, b""
        while not accepted:
            data = self._socket.recv(65536)
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                if isinstance(event, AcceptConnection):
                    accepted = True
                elif isinstance(event, RejectConnection):
                    status = event.status_code
                elif isinstance(event, RejectData):
                    body += event.data
                    if event.body_finished:
                        raise CommandError(_error_message(status, body))
                else:
                    messages += self._decode_message(event)
            if not data and not accepted:
                raise CommandError(_error_message(status, body))
        return messages

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def queued_bytes(self) -> int:
        """Bytes that are queued and not sent yet."""
        return len(self._send_buffer)

    @property
    def has_pending_data(self) -> bool:
        """Whether data was received that `select` cannot see, because it is inside the TLS layer."""
        return bool(self._early_messages) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def queue_message(self, channel: int, data: bytes) -> None:
        """Queue a message; `pump` sends it."""
        from wsproto.events import BytesMessage

        if self.is_open:
            self._send_buffer += self._connection.send(BytesMessage(data=bytes((channel,)) + data))

    def pump(self) -> Iterator[tuple[int, bytes]]:
        """Send and receive without blocking, and yield (channel, data). `is_open` becomes false when the server closes."""
        messages, self._early_messages = self._early_messages, []
        yield from messages
        self._flush()
        data: bytes | None
        try:
            data = self._socket.recv(1 << 18)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        except OSError:
            data = b""
        self._connection.receive_data(data or None)
        for event in self._connection.events():
            yield from self._decode_message(event)
        if not data:
            self.is_open = False

    def _flush(self) -> None:
        try:
            while self._send_buffer:
                self._send_buffer = self._send_buffer[self._socket.send(self._send_buffer[: 1 << 16]) :]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        except OSError:
            self._send_buffer = b""

    def _decode_message(self, event: Any) -> list[tuple[int, bytes]]:
        from wsproto.events import BytesMessage, CloseConnection, Ping

        if isinstance(event, BytesMessage):
            self._partial_message += bytes(event.data)
            if event.message_finished:
                message, self._partial_message = self._partial_message, b""
                return [(message[0], message[1:])] if message else []
        elif isinstance(event, Ping):
            self._send_buffer += self._connection.send(event.response())
        elif isinstance(event, CloseConnection):
            self.is_open = False
        return []

    def close(self) -> None:
        """Close the connection; the server then stops the program that it started for us."""
        self._socket.close()


def _error_message(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server did not accept the connection (HTTP {status}): {body[:200].decode(errors='replace')}"


def write_all(sink: int, data: bytes) -> None:
    """Write all bytes to a file descriptor."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]
