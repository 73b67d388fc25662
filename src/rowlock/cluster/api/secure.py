"""TLS for one connection, and little else: what comes in is decrypted where it is received, and what one turn of the
event loop writes goes out as one record in one system call. Connections that have something to say at the same time are
first all encrypted and then all sent: a client that holds several of them (a thousand watchers, say) is woken once and
finds more, where it would sleep and be woken for each; to wake somebody is the dearest part of sending.

asyncio's own TLS keeps a quarter of a megabyte per connection, which a thousand watchers cannot afford, and takes
twice the time per request. `Connection` is the protocol of a plain socket and the transport of the protocol within.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)

LARGE = 64 * 1024
"""Bytes read at once; and above this many nothing is gained by waiting for more to write."""
CHUNK = 256 * 1024
"""Bytes encrypted at once."""
HANDSHAKE_S = 15.0
"""A client that has not said who it is by then is cut off: an open connection costs it less than us."""
_RECEIVED = bytearray(LARGE)
_VIEW = memoryview(_RECEIVED)
"""One for all connections: what is in it is copied before the next read."""


class Within(Protocol):
    """What speaks over the connection: uvicorn's protocols are like this."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's: TLS 1.2 and later, HTTP/1.1."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(certificate, key)
    made.set_alpn_protocols(["http/1.1"])
    return made


class Outbox:
    """The connections of one server that have written in this turn of the event loop."""

    def __init__(self) -> None:
        self._writers: list[Connection] = []

    def add(self, connection: Connection) -> None:
        if not self._writers:
            asyncio.get_running_loop().call_soon(self._send)
        self._writers.append(connection)

    def _send(self) -> None:
        writers, self._writers = self._writers, []
        for connection in writers:
            connection.encrypt()
        for connection in writers:
            connection.push()


class Connection(asyncio.Transport, asyncio.BufferedProtocol):
    """Both ends of the encryption: the socket's bytes on one side, `within`'s on the other."""

    def __init__(self, tls: ssl.SSLContext, within: Within, outbox: Outbox) -> None:
        super().__init__()
        self._context, self._within, self._outbox = tls, within, outbox
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._plain: asyncio.Transport
        self._late: asyncio.TimerHandle | None = None
        self._parts: list[bytes | bytearray | memoryview] = []
        self._size = 0
        self._open = self._closing = self._paused = self._single = False

    # ------------------------------------------------------------ from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._plain = transport
        self._late = self._loop.call_later(HANDSHAKE_S, transport.abort)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(_VIEW[:nbytes])
        if self._open or self._shaken():
            self._read()

    def _shaken(self) -> bool:
        """Go on with the handshake; True when it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.push()
            return False
        except ssl.SSLError as error:
            log.debug("a client's TLS handshake failed: %s", error)
            self.push()  # the alert that says why
            self._plain.close()
            return False
        self.push()
        if self._late:
            self._late.cancel()
        self._open = True
        self._within.connection_made(self)
        return True

    def _read(self) -> None:
        """Everything that has come in, as far as `within` wants it now."""
        while not self._paused and not self._closing:
            try:
                data = self._tls.read(LARGE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                log.debug("a connection broke: %s", error)
                self.abort()
                return
            if not data:  # it has said goodbye
                self.close()
                return
            self._within.data_received(data)
            if not self._incoming.pending and not self._tls.pending():
                break  # cheaper to ask than to be told by an exception
        self.push()

    def eof_received(self) -> bool | None:
        if self._open:
            self._within.eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._parts.clear()
        if self._late:
            self._late.cancel()
        if self._open:
            self._within.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._open:
            self._within.pause_writing()

    def resume_writing(self) -> None:
        if self._open:
            self._within.resume_writing()

    # ------------------------------------------------------------ to the socket

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        if not self._parts:
            self._outbox.add(self)
        self._parts.append(data)
        self._size += len(data)
        if self._single or self._size > LARGE:
            self.flush()

    def flush(self) -> None:
        """What has been written so far goes out now."""
        self.encrypt()
        self.push()

    def single(self) -> None:
        """From now on every write is a record of its own and goes out at once: for a client that asks select() after each
        message."""
        self.flush()
        self._single = True

    def encrypt(self) -> None:
        """What has been written so far."""
        if not self._parts:
            return
        parts, self._parts, self._size = self._parts, [], 0
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            if len(data) <= CHUNK:
                self._tls.write(data)
                return
            view = memoryview(data)
            while view:
                view = view[self._tls.write(view[:CHUNK]) :]
                self.push()  # a long answer: the client decrypts the beginning meanwhile
        except ssl.SSLError as error:
            log.debug("a connection broke: %s", error)
            self.abort()

    def push(self) -> None:
        """What is encrypted goes out now."""
        if self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def close(self) -> None:
        if self._closing:
            return
        self.flush()
        self._closing = True
        try:
            self._tls.unwrap()  # says goodbye; the client's own goodbye is not waited for
        except ssl.SSLError:
            pass
        self.push()
        self._plain.close()

    def abort(self) -> None:
        self._closing = True
        self._parts.clear()
        self._plain.abort()

    # ------------------------------------------------------------ what a transport is asked

    def is_closing(self) -> bool:
        return self._closing or self._plain.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._paused = True
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._plain.resume_reading()
            self._loop.call_soon(self._read)  # what came in before the pause

    def is_reading(self) -> bool:
        return not self._paused and self._plain.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size() + self._size

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.flush()
        self._within = protocol  # type: ignore[assignment]  # a websocket's, which is like the one before

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._within  # type: ignore[return-value]  # uvicorn's are protocols by their methods
