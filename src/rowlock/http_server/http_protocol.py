"""HTTP on one connection: uvicorn's protocol over our own TLS, with limits on the size and duration of requests.

A client that sends too much or too slowly is disconnected, so that it does not hold up others. Pass the result of
`protocol_factory` to `uvicorn.Config(http=…)`. Websockets are served by wsproto, which is imported for the first of
them.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rowlock.http_server.connection_limits import ConnectionCounts, CountedConnection, LimitedConnection
from rowlock.http_server.late import WEBSOCKETS
from rowlock.http_server.tls import Outbox, TlsConnection

HEAD_LIMIT = 64 * 1024
"""Most bytes of a request's first line and headers together, and of framing between two pieces of its body or after the last."""
HEADER_COUNT_LIMIT = 200
"""Most headers of a request: an empty header takes fifty times its bytes in memory."""
BODY_CEILING = 6 * 1024 * 1024
"""Most bytes of any body, enforced before authentication. Endpoints have lower limits with their own error messages."""
DISCARD_CEILING = 32 * 1024 * 1024
"""Most bytes of a body that are read and discarded after the answer: a client disconnected while it sends does not see the answer."""
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
PIPELINE_LIMIT = 16
"""Most pipelined requests that wait for the current one. Today's clients do not pipeline."""
FIRST_S = 30.0
"""Seconds within which a new connection must send the first byte of a request."""
REQUEST_S = 60.0
"""Seconds from a request's first byte to its last."""


def protocol_factory(
    tls: ssl.SSLContext,
    plain_port: int = 0,
    other_tls: tuple[int, ssl.SSLContext] | None = None,
    *,
    descriptors: set[int] | None = None,
) -> type[asyncio.Protocol]:
    """The factory that uvicorn calls for every connection. Connections to `plain_port`, a loopback listener, use no TLS; those to the
    port of `other_tls` use another certificate. `descriptors` is kept filled with the open connections' descriptors."""
    other_port, other_context = other_tls or (0, tls)

    outbox, counts = Outbox(), ConnectionCounts(descriptors)

    def make_connection(**kwargs: Any) -> asyncio.BaseProtocol:
        asyncio.get_running_loop().set_exception_handler(counts.handle_loop_error)

        def make_protocol(connection: CountedConnection, local_port: int) -> asyncio.BaseProtocol:
            if plain_port and local_port == plain_port:
                return PlainHttpProtocol(connection, **kwargs)
            context = other_context if local_port == other_port else tls
            return TlsConnection(context, HttpProtocol(connection.speak, **kwargs), outbox, connection.close)

        return LimitedConnection(counts, make_protocol)

    return make_connection  # type: ignore[return-value]  # uvicorn wants a class and only calls it


class _LimitExceeded(Exception):
    """Raised in a parser callback to stop parsing the received data."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with limits on the size and duration of requests."""

    def __init__(self, on_first_request: Callable[[], None] = lambda: None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._on_first_request: Callable[[], None] | None = on_first_request
        self._head_bytes: int | None = None
        """Bytes of the current head so far; None outside a head."""
        self._body_bytes = 0
        self._bytes_since_body = 0
        """Bytes of framing and trailers received since the last piece of the body."""
        self._request_incomplete = False
        self._close_when_done = False
        """The answer is sent and ends the connection; close when the rest of the body has been read, so that the client sees the answer."""
        self._request_timer: asyncio.TimerHandle | None = None
        self._idle_deadline = math.inf
        """When an idle client is disconnected (event loop time); infinite while a request is received or answered."""
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn says the same
        super().connection_made(transport)
        self._idle_deadline = self.loop.time() + FIRST_S
        self._idle_timer = self.loop.call_at(self._idle_deadline, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        """Runs on one timer for the life of a connection: a new timer per answer would cost as much as reading the request."""
        now = self.loop.time()
        if now >= self._idle_deadline:
            return self.timeout_keep_alive_handler()
        self._idle_timer = self.loop.call_at(min(self._idle_deadline, now + self.timeout_keep_alive), self._check_idle)

    def _stop_timers(self) -> None:
        """Cancel the request and idle timers."""
        for timer in filter(None, (self._request_timer, self._idle_timer)):
            timer.cancel()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_deadline = math.inf

    def data_received(self, data: bytes) -> None:
        self._idle_deadline = math.inf
        self._bytes_since_body += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError:  # _LimitExceeded too; not logged, because any client could fill the disk
            if not self.transport.is_closing():
                self.send_400_response("Invalid HTTP request received.")
        if not self._request_incomplete or self.transport.is_closing():
            return
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(
                REQUEST_S, self._send_error, 408, "the request did not come in time"
            )
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self._send_error(431, f"the request's headers are too large: the limit is {HEAD_LIMIT} bytes")
        elif self._bytes_since_body > HEAD_LIMIT:
            self.transport.close()  # too many trailers, or chunks of mostly framing

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINE_LIMIT:
            self.transport.close()
            raise _LimitExceeded
        super().on_message_begin()
        self._head_bytes, self._request_incomplete, self._body_bytes = 0, True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADER_COUNT_LIMIT:
            self._send_error(431, f"the request has too many headers: the limit is {HEADER_COUNT_LIMIT}")
            raise _LimitExceeded
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._bytes_since_body = 0
        self._body_bytes += len(body)
        if self._body_bytes > (DISCARD_CEILING if self.cycle.response_complete else BODY_CEILING):
            self.transport.close()
            raise _LimitExceeded
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._head_bytes, self._bytes_since_body = None, 0
        if self._on_first_request is not None:
            self._on_first_request()
            self._on_first_request = None
        if self.parser.should_upgrade() and self._get_upgrade() == b"spdy/3.1":
            self.scope["extensions"] = {"rowlock.take_over": {"call": self._take_over}}
        super().on_headers_complete()
        if self.cycle is not None and not self.cycle.keep_alive and self.scope["method"] in _METHODS_WITH_BODY:
            self.cycle.transport = _ClosingTransport(self)  # type: ignore[assignment]  # all that a cycle uses of one
        first_of_scope = self.cycle is not None and self.cycle.scope is self.scope and "extensions" not in self.scope
        if first_of_scope:
            self.scope["extensions"] = {"rowlock": Exchange(self.cycle)}  # type: ignore[dict-item]  # not ASGI's type

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """As uvicorn's, but without an event loop callback per finished request."""
        task = self.loop.create_task(_run(cycle, app, self.tasks))
        self.tasks.add(task)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._request_incomplete = False
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        if self._close_when_done:
            self.transport.close()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())  # reading stays paused until all of the pipeline is answered
        else:
            self.flow.resume_reading()
            self._idle_deadline = self.loop.time() + self.timeout_keep_alive
        if isinstance(self.transport, TlsConnection):
            self.transport.flush()  # no more will be written in this turn of the loop

    def close_when_read(self) -> None:
        """Close once the rest of the request has been read and discarded."""
        if self._request_incomplete:
            self._close_when_done = True
        else:
            self.transport.close()

    def _send_error(self, code: int, why: str) -> None:
        """Send an error if the request's head is incomplete (so nothing has been answered), and close the connection."""
        if self.transport.is_closing():
            return
        if self._head_bytes is not None:
            head = f"HTTP/1.1 {code} \r\ncontent-type: text/plain\r\ncontent-length: {len(why)}\r\nconnection: close\r\n\r\n"
            self.transport.write((head + why).encode())
        self.transport.close()

    def _take_over(self, other: asyncio.Protocol) -> asyncio.Transport:
        """Hand the connection to another protocol; this one sends nothing more. Returns the transport."""
        self._leave_http()
        self.connections.discard(self)
        self.cycle.disconnected = True
        self.transport.set_protocol(other)
        return self.transport

    def _leave_http(self) -> None:
        self._stop_timers()
        if isinstance(self.transport, TlsConnection):
            # A client that calls select() between messages misses a second message in the same TLS record.
            self.transport.set_unbuffered()

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"websocket"

    def handle_websocket_upgrade(self) -> None:
        self._leave_http()
        if (loaded := WEBSOCKETS.loaded) is not None:
            return self._speak_websocket(loaded)
        self.flow.pause_reading()  # data that arrives until then belongs to the new protocol
        task = self.loop.create_task(self._speak_websocket_when_loaded())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _speak_websocket_when_loaded(self) -> None:
        loaded = await WEBSOCKETS.get()
        if not self.transport.is_closing():
            self._speak_websocket(loaded)
            self.flow.resume_reading()

    def _speak_websocket(self, websocket_protocol: type[asyncio.Protocol]) -> None:
        self.ws_protocol_class = websocket_protocol
        super().handle_websocket_upgrade()


class PlainHttpProtocol(HttpProtocol):
    """The same without TLS. It reports the connection's end to the counts itself, as `TlsConnection` does otherwise."""

    def __init__(self, connection: CountedConnection, **kwargs: Any) -> None:
        super().__init__(connection.speak, **kwargs)
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.close()
        super().connection_lost(exc)


class _ClosingTransport:
    """Transport for a request that ends its connection: `close` waits until the request has been read completely."""

    __slots__ = ("_protocol",)

    def __init__(self, protocol: HttpProtocol) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        self._protocol.transport.write(data)

    def close(self) -> None:
        self._protocol.close_when_read()

    def is_closing(self) -> bool:
        return self._protocol.transport.is_closing()


async def _run(cycle: RequestResponseCycle, app: Any, tasks: set[asyncio.Task[None]]) -> None:
    try:
        await cycle.run_asgi(app)
    finally:
        tasks.discard(asyncio.current_task())
        cycle.scope.pop(
            "extensions", None
        )  # a reference cycle would keep the connection alive until garbage collection


class Exchange:
    """A request and its answer, bypassing ASGI: does what uvicorn's `receive` and `send` do when there is nothing to wait for,
    in a third of the time. A method returns None or False if it would have to wait; then use ASGI."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """The whole body; None if it is incomplete or cannot be taken now."""
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected or cycle.response_complete:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def answer(self, code: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer; False if it must go through ASGI. `headers` include the length and contain nothing from a client."""
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        cycle.response_started = cycle.response_complete = True
        head = [STATUS_LINE[code]]
        for name, value in (*cycle.default_headers, *headers):
            head += (name, b": ", value, b"\r\n")
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        cycle.transport.write(b"".join((*head, end, body)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True

    def cut(self) -> None:
        """Abort the connection of a client that does not read; unsent data is dropped."""
        self._cycle.transport.abort()

    def pass_on(self, chunk: bytes) -> bool:
        """Write a chunk, framing included, of an answer that has begun; False if it must go through ASGI."""
        cycle = self._cycle
        if (
            cycle.disconnected or not cycle.response_started or cycle.response_complete or not cycle.chunked_encoding
            or cycle.flow.write_paused
        ):  # fmt: skip
            return False
        cycle.transport.write(chunk)
        return True
