"""TLS for one connection. Data is decrypted as soon as it is received, and all that one turn of the event loop writes is
sent as one record in one system call.
Connections that write in the same turn are first all encrypted, then all sent: a client that holds many of them (a
thousand watches) is woken once instead of once per connection; waking a process is the most expensive part of sending.

asyncio's own TLS takes 256 KiB per connection, too much for a thousand watches, and twice the time per request.
`TlsConnection` is the protocol of the plain socket and the transport of the inner protocol.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
"""Most bytes read at once; also the number of bytes written after which they are sent without waiting for more."""
ENCRYPT_BYTES = 256 * 1024
"""Most bytes encrypted at once."""
HANDSHAKE_S = 15.0
"""Seconds for the TLS handshake; a slower client is disconnected."""
_READ_BUFFER = bytearray(READ_BYTES)
_READ_VIEW = memoryview(_READ_BUFFER)
"""One buffer for all connections: its content is copied before the next read."""


class InnerProtocol(Protocol):
    """The protocol inside the encryption, such as uvicorn's."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's TLS context: TLS 1.2 and later, HTTP/1.1. Raises OSError."""
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
    tls_context.load_cert_chain(certificate, key)
    tls_context.set_alpn_protocols(["http/1.1"])
    return tls_context


class NamedCertificate:
    """A certificate for clients that send a server name (SNI); clients that connect to an address or localhost see the server's
    own. It is reloaded when its file changes, since Secrets of a cluster are renewed while the server runs."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises OSError."""
        self._files = certificate, key
        self._changed = self._change_time()
        self._context = server_context(certificate, key)

    def install(self, context: ssl.SSLContext) -> None:
        """Use this certificate in connections of `context` whose client sends a server name (SNI)."""
        context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        if name and name != "localhost":
            self._read_again()
            connection.context = self._context

    def _change_time(self) -> float:
        return max(file.stat().st_mtime for file in self._files)

    def _read_again(self) -> None:
        try:
            if (changed := self._change_time()) != self._changed:
                self._context, self._changed = server_context(*self._files), changed
        except OSError as error:  # perhaps half written: the next client tries again
            log.warning("the certificate %s cannot be read again: %s", self._files[0], error)


class _Gone(asyncio.Protocol):
    """The inner protocol of a lost connection."""


_GONE: InnerProtocol = _Gone()


class Outbox:
    """The connections of one server that wrote in this turn of the event loop."""

    def __init__(self) -> None:
        self._writers: list[TlsConnection] = []

    def add(self, connection: TlsConnection) -> None:
        if not self._writers:
            asyncio.get_running_loop().call_soon(self._send)
        self._writers.append(connection)

    def _send(self) -> None:
        writers, self._writers = self._writers, []
        for connection in writers:
            connection.encrypt()
        for connection in writers:
            connection.send_encrypted()


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of the socket, and the transport of `inner`."""

    def __init__(self, tls: ssl.SSLContext, inner: InnerProtocol, outbox: Outbox, on_close: Callable[[], None]) -> None:
        super().__init__()
        self._context, self._inner, self._outbox, self._on_close = tls, inner, outbox, on_close
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes | bytearray | memoryview] = []
        self._size = 0
        self._handshake_done = self._closing = self._paused = self._unbuffered = False

    # ------------------------------------------------------------ from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        self._handshake_timer = self._loop.call_later(HANDSHAKE_S, transport.abort)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(_READ_VIEW[:nbytes])
        if self._handshake_done or self._do_handshake():
            self._read()

    def _do_handshake(self) -> bool:
        """Continue the handshake; True when it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.send_encrypted()
            return False
        except ssl.SSLError as error:
            log.debug("a client's TLS handshake failed: %s", error)
            self.send_encrypted()  # the alert that says why
            self._raw.close()
            return False
        self.send_encrypted()
        if self._handshake_timer:
            self._handshake_timer.cancel()
        self._handshake_done = True
        self._inner.connection_made(self)
        return True

    def _read(self) -> None:
        """Decrypt received data and pass it to `inner`, unless it has paused reading."""
        while not self._paused and not self._closing:
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                log.debug("a connection broke: %s", error)
                self.abort()
                return
            if not data:  # the client sent close_notify
                self.close()
                return
            self._inner.data_received(data)
            if not self._incoming.pending and not self._tls.pending():
                break  # cheaper to ask than to be told by an exception
        self.send_encrypted()

    def eof_received(self) -> bool | None:
        if self._handshake_done:
            self._inner.eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._on_close()
        self._parts.clear()
        if self._handshake_timer:
            self._handshake_timer.cancel()
        if self._handshake_done:
            self._inner.connection_lost(exc)
        self._inner = _GONE  # breaks a reference cycle, which would keep the buffers until a full garbage collection

    def pause_writing(self) -> None:
        if self._handshake_done:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._handshake_done:
            self._inner.resume_writing()

    # ------------------------------------------------------------ to the socket

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        if not self._parts:
            self._outbox.add(self)
        self._parts.append(data)
        self._size += len(data)
        if self._unbuffered or self._size > READ_BYTES:
            self.flush()

    def flush(self) -> None:
        """Encrypt and send what has been written so far."""
        self.encrypt()
        self.send_encrypted()

    def set_unbuffered(self) -> None:
        """Send every write at once as its own record from now on, for clients that call select() between
        messages."""
        self.flush()
        self._unbuffered = True

    def encrypt(self) -> None:
        """Encrypt what has been written so far."""
        if not self._parts:
            return
        parts, self._parts, self._size = self._parts, [], 0
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            if len(data) <= ENCRYPT_BYTES:
                self._tls.write(data)
                return
            view = memoryview(data)
            while view:
                view = view[self._tls.write(view[:ENCRYPT_BYTES]) :]
                self.send_encrypted()  # a long answer: the client decrypts the beginning meanwhile
        except ssl.SSLError as error:
            log.debug("a connection broke: %s", error)
            self.abort()

    def send_encrypted(self) -> None:
        """Send what has been encrypted so far."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        if self._closing:
            return
        self.flush()
        self._closing = True
        try:
            self._tls.unwrap()  # sends close_notify; does not wait for the client's
        except ssl.SSLError:
            pass
        self.send_encrypted()
        self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._parts.clear()
        self._raw.abort()

    # ------------------------------------------------------------ transport interface

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        return self._tls if name == "ssl_object" else self._raw.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._raw.resume_reading()
            self._loop.call_soon(self._read)  # what came in before the pause

    def is_reading(self) -> bool:
        return not self._paused and self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size() + self._size

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.flush()
        self._inner = protocol  # type: ignore[assignment]  # a websocket's, which is like the one before

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner  # type: ignore[return-value]  # uvicorn's are protocols by their methods
