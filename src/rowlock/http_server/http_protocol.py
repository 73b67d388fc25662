"""HTTP on one connection: uvicorn's protocol over our own TLS, with limits that a client cannot talk its way around.

A request's head is small and comes soon, and its body follows. A slower client is cut off, so that it holds up
no other. Give `protocol(context)` to `uvicorn.Config(http=…)`. Websockets are spoken by wsproto, which is imported for
the first of them.
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
"""Bytes of a request's first line and headers together; as many between two pieces of its body, and behind the last."""
HEADER_COUNT_LIMIT = 200
"""Headers of a request: thousands of empty ones would cost fifty times their bytes in memory."""
BODY_CEILING = 6 * 1024 * 1024
"""Bytes of any body, before anybody knows whose it is. What an endpoint takes is less, and it says so itself."""
DISCARD_CEILING = 32 * 1024 * 1024
"""Bytes of a body that are read and thrown away behind an answer: a client that is cut off while it sends sees no answer."""
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
PIPELINE_LIMIT = 16
"""Requests that may wait behind one that is being answered. Clients of today send one at a time."""
FIRST_S = 30.0
"""Seconds in which a new connection must send the first byte of a request."""
REQUEST_S = 60.0
"""Seconds from a request's first byte to its last."""


def protocol_factory(
    tls: ssl.SSLContext,
    plain_port: int = 0,
    other_tls: tuple[int, ssl.SSLContext] | None = None,
    *,
    descriptors: set[int] | None = None,
) -> type[asyncio.Protocol]:
    """What uvicorn calls for every connection. On `plain_port`, a listener of loopback's, HTTP is spoken without TLS; on the port of
    `other_tls` with another certificate. `descriptors` has those of the open connections."""
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
    """Ends the parsing of what has been read."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with a clock and a measure for what comes in."""

    def __init__(self, on_first_request: Callable[[], None] = lambda: None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._on_first_request: Callable[[], None] | None = on_first_request
        self._head_bytes: int | None = None
        """Bytes of the head so far; None outside one."""
        self._body_bytes = 0
        self._bytes_since_body = 0
        """Framing and trailers: what came since the last piece of the body."""
        self._request_incomplete = False
        self._close_when_done = False
        """It is answered and wants no more; but who is cut off while the body is sent never sees the answer."""
        self._request_timer: asyncio.TimerHandle | None = None
        self._idle_deadline = math.inf
        """When the client has been silent for too long; never, while it is being answered."""
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn says the same
        super().connection_made(transport)
        self._idle_deadline = self.loop.time() + FIRST_S
        self._idle_timer = self.loop.call_at(self._idle_deadline, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        """One timer for the life of a connection: another for each answer would cost as much as reading the request."""
        now = self.loop.time()
        if now >= self._idle_deadline:
            return self.timeout_keep_alive_handler()
        self._idle_timer = self.loop.call_at(min(self._idle_deadline, now + self.timeout_keep_alive), self._check_idle)

    def _stop_timers(self) -> None:
        """Nobody waits for this connection to say something any more."""
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
        except httptools.HttpParserError:  # ours among them; not logged, or anybody could fill the disk
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
            self.transport.close()  # trailers, or chunks that are all framing

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
            self.scope["extensions"] = {"rowlock": Exchange(self.cycle)}  # type: ignore[dict-item]  # not for everybody

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """As uvicorn does it, without a callback of the event loop's for each request that is done."""
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
            self._start_asgi_task(*self.pipeline.pop())  # nothing more is read before these are answered
        else:
            self.flow.resume_reading()
            self._idle_deadline = self.loop.time() + self.timeout_keep_alive
        if isinstance(self.transport, TlsConnection):
            self.transport.flush()  # nothing more will come in this turn of the loop

    def close_when_read(self) -> None:
        """Close, once the rest of the request is read (and thrown away)."""
        if self._request_incomplete:
            self._close_when_done = True
        else:
            self.transport.close()

    def _send_error(self, code: int, why: str) -> None:
        """Say so, if nothing else was said on this request, and hang up."""
        if self.transport.is_closing():
            return
        if self._head_bytes is not None:
            head = f"HTTP/1.1 {code} \r\ncontent-type: text/plain\r\ncontent-length: {len(why)}\r\nconnection: close\r\n\r\n"
            self.transport.write((head + why).encode())
        self.transport.close()

    def _take_over(self, other: asyncio.Protocol) -> asyncio.Transport:
        """The connection belongs to another protocol from now on; ours has nothing more to answer."""
        self._leave_http()
        self.connections.discard(self)
        self.cycle.disconnected = True
        self.transport.set_protocol(other)
        return self.transport

    def _leave_http(self) -> None:
        self._stop_timers()
        if isinstance(self.transport, TlsConnection):
            # A client that asks select() after each message does not see one that came in the same TLS record.
            self.transport.set_unbuffered()

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"websocket"

    def handle_websocket_upgrade(self) -> None:
        self._leave_http()
        if (loaded := WEBSOCKETS.loaded) is not None:
            return self._speak_websocket(loaded)
        self.flow.pause_reading()  # what comes meanwhile is for the new protocol
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
    """The same without TLS; the connection is counted here, as `TlsConnection` counts the others."""

    def __init__(self, connection: CountedConnection, **kwargs: Any) -> None:
        super().__init__(connection.speak, **kwargs)
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.close()
        super().connection_lost(exc)


class _ClosingTransport:
    """The transport of a request that ends its connection: closed when the request was read to its end."""

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
        )  # they lead back to the cycle, and would keep the connection until a collection


class Exchange:
    """A request and its answer, past ASGI: what uvicorn's `receive` and `send` do with them when nothing is to be waited
    for, for a third of the time. Each of these says when it is not so now; then ASGI's own way is the way."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """The whole body; None while some of it is missing."""
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected or cycle.response_complete:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def answer(self, code: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """The whole answer. Its length is among the headers; nothing of a client's is in them."""
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
        """End the connection of a client that takes nothing: what it was sent and did not read is dropped."""
        self._cycle.transport.abort()

    def pass_on(self, chunk: bytes) -> bool:
        """A chunk of an answer that has begun."""
        cycle = self._cycle
        if (
            cycle.disconnected or not cycle.response_started or cycle.response_complete or not cycle.chunked_encoding
            or cycle.flow.write_paused
        ):  # fmt: skip
            return False
        cycle.transport.write(chunk)
        return True
