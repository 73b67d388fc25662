"""TLS for one connection, and little else: what comes in is decrypted where it is received, and what one turn of the
event loop writes goes out as one record in one system call. Connections that have something to say at the same time are
first all encrypted and then all sent: a client that holds several of them (a thousand watchers, say) is woken once and
finds more, where it would sleep and be woken for each; waking a process is the most expensive part of sending.

asyncio's own TLS keeps a quarter of a megabyte per connection, which a thousand watchers cannot afford, and takes
twice the time per request. `TlsConnection` is the protocol of a plain socket and the transport of the protocol within.
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
"""Bytes read at once; and above this many nothing is gained by waiting for more to write."""
ENCRYPT_BYTES = 256 * 1024
"""Bytes encrypted at once."""
HANDSHAKE_S = 15.0
"""A client that has not said who it is by then is cut off: an open connection costs it less than us."""
_READ_BUFFER = bytearray(READ_BYTES)
_READ_VIEW = memoryview(_READ_BUFFER)
"""One for all connections: what is in it is copied before the next read."""


class InnerProtocol(Protocol):
    """What speaks over the connection: uvicorn's protocols are like this."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's: TLS 1.2 and later, HTTP/1.1."""
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
    tls_context.load_cert_chain(certificate, key)
    tls_context.set_alpn_protocols(["http/1.1"])
    return tls_context


class NamedCertificate:
    """A certificate for clients that name the server (SNI); clients that know an address, as those of this machine do, see the
    server's own. It is read again when its file has changed: Secrets of a cluster are renewed under a running server."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises OSError."""
        self._files = certificate, key
        self._changed = self._change_time()
        self._context = server_context(certificate, key)

    def install(self, context: ssl.SSLContext) -> None:
        """From now on connections of this context show it to clients that name the server (SNI)."""
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
        except OSError as error:  # half of it is written: the next client tries again
            log.warning("the certificate %s cannot be read again: %s", self._files[0], error)


class _Gone(asyncio.Protocol):
    """Within a connection that has been lost."""


_GONE: InnerProtocol = _Gone()


class Outbox:
    """The connections of one server that have written in this turn of the event loop."""

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
    """Both ends of the encryption: the socket's bytes on one side, `inner`'s on the other."""

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
        """Go on with the handshake; True when it is done."""
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
        """Everything that has come in, as far as `inner` wants it now."""
        while not self._paused and not self._closing:
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                log.debug("a connection broke: %s", error)
                self.abort()
                return
            if not data:  # it has said goodbye
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
        self._inner = _GONE  # it knows us: each connection would wait for a full collection, with its buffers

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
        """What has been written so far goes out now."""
        self.encrypt()
        self.send_encrypted()

    def set_unbuffered(self) -> None:
        """From now on every write is a record of its own and goes out at once: for a client that asks select() after each
        message."""
        self.flush()
        self._unbuffered = True

    def encrypt(self) -> None:
        """What has been written so far."""
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
        """What is encrypted goes out now."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        if self._closing:
            return
        self.flush()
        self._closing = True
        try:
            self._tls.unwrap()  # says goodbye; the client's own goodbye is not waited for
        except ssl.SSLError:
            pass
        self.send_encrypted()
        self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._parts.clear()
        self._raw.abort()

    # ------------------------------------------------------------ what a transport is asked

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
