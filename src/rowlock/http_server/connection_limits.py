"""Limits on open connections, in total and per client address, so that descriptors remain for the journal, logs and
pods.

At the limit, the client's oldest connection that has sent no request yet is closed to make room. So a pod that opens hundreds of
idle connections does not keep others out, although all pods and the owner share the limit of loopback.
Connections are counted when they have a transport, not when asyncio requests their protocol: if many are accepted in one turn of
the event loop, all their protocols are requested before the first of them counts as open.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)

REMOTE_LIMIT = 1_024
"""Most connections of one remote address; fewer if the server may open few files."""
LOOPBACK = "loopback"
ACCEPT_LIMIT = 100
"""Most connections accepted in one turn of the event loop; fewer if the server may open few files."""

ACCEPT_QUEUE = 2_048
"""Length of the kernel's queue of connections to accept (the backlog)."""


_ROOM = 32
"""Silent connections that are closed when `accept` finds no free descriptor."""
_COUNT_INTERVAL = 0.25
"""Seconds between two counts of the descriptors, since a count reads a directory."""


def connection_limit(others: int = 0) -> int:
    """Most open connections: three quarters of the descriptors, fewer if `others` (such as one per running pod) take more than an
    eighth. Without a free descriptor `accept` fails, and asyncio retries only after a second."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(min(soft * 3 // 4, soft * 7 // 8 - others), 16)


def count_descriptors() -> int:
    """How many descriptors this process has open; the limit if none is free to count with."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def client_limit(client: str, total: int) -> int:
    """Most connections of one client (see `client_of`) out of `total`. Loopback, the owner and all pods, gets the largest share."""
    return total * 7 // 8 if client == LOOPBACK else min(total // 4, REMOTE_LIMIT)


def accept_limit(total: int) -> int:
    """Connections to accept in one turn, out of `total`. Excess ones are closed three turns later; until then they must fit
    into the quarter of the descriptors that is reserved for files."""
    return max(1, min(total // 36, ACCEPT_LIMIT))


@lru_cache(maxsize=1024)
def client_of(host: str) -> str:
    """The client that an address counts for: all of loopback is one client, and so is an IPv6 /64 network, since one
    machine may have all its addresses."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return LOOPBACK if address.is_loopback else str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return LOOPBACK if address.is_loopback else str(address)


class ConnectionCounts:
    """The open connections of one server."""

    def __init__(self, descriptors: set[int] | None = None) -> None:
        """`descriptors` is kept filled with the open connections' descriptors, for the event loop's selector."""
        self._descriptors = descriptors if descriptors is not None else set()
        self._total = 0
        self._by_client: Counter[str] = Counter()
        self._silent: dict[str, dict[CountedConnection, None]] = {}
        """Client → its connections that have sent no request yet, oldest first."""
        self._others, self._next_count = 0, 0.0

    def open(self, host: str, cut: Callable[[], None], descriptor: int = -1) -> CountedConnection | None:
        """Count a new connection from this address; None if it exceeds the limits. `cut` will be called to close it for a newer one."""
        client, limit = client_of(host), connection_limit(self._count_others())
        is_full = self._total >= limit or self._by_client[client] >= client_limit(client, limit)
        if is_full and not self._cut_oldest(client):
            return None
        connection = CountedConnection(self, client, cut, descriptor)
        self._descriptors.add(descriptor)
        self._total += 1
        self._by_client[client] += 1
        self._silent.setdefault(client, {})[connection] = None
        return connection

    def _count_others(self) -> int:
        """Descriptors other than connections, at most `_COUNT_INTERVAL` old."""
        now = time.monotonic()
        if now >= self._next_count:
            self._next_count = now + _COUNT_INTERVAL
            self._others = max(0, count_descriptors() - self._total)
        return self._others

    def _cut_oldest(self, client: str) -> bool:
        """Close this client's oldest silent connection; False if there is none."""
        oldest = next(iter(self._silent.get(client, ())), None)
        if oldest is None:
            return False
        oldest.close()
        oldest.cut()
        return True

    def make_room(self) -> int:
        """Close up to `_ROOM` silent connections, oldest first, of the clients with the most of them. Returns how many."""
        closed = 0
        while self._silent and closed < _ROOM:
            self._cut_oldest(max(self._silent, key=lambda client: len(self._silent[client])))
            closed += 1
        return closed

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler for the event loop. If `accept` finds no free descriptor, asyncio retries every second: close silent
        connections to free some. Other errors go to asyncio's default handler."""
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            log.warning(
                "no descriptor is free: %d connections that have asked for nothing are closed", self.make_room()
            )
        else:
            loop.default_exception_handler(context)

    def forget_silence(self, connection: CountedConnection) -> None:
        """The connection has sent a request, or is closed."""
        silent = self._silent.get(connection.client, {})
        silent.pop(connection, None)
        if not silent:
            self._silent.pop(connection.client, None)

    def forget(self, connection: CountedConnection) -> None:
        """The connection is closed."""
        self.forget_silence(connection)
        self._descriptors.discard(connection.descriptor)
        self._total -= 1
        self._by_client[connection.client] -= 1
        if not self._by_client[connection.client]:
            del self._by_client[connection.client]


class CountedConnection:
    """An open connection. Call `speak` at its first request and `close` when it is closed; both are idempotent."""

    __slots__ = ("_counts", "_is_open", "client", "cut", "descriptor")

    def __init__(self, counts: ConnectionCounts, client: str, cut: Callable[[], None], descriptor: int) -> None:
        self._counts, self.client, self.cut, self.descriptor = counts, client, cut, descriptor
        self._is_open = True

    def speak(self) -> None:
        """It has sent a request, and is no longer closed to make room."""
        self._counts.forget_silence(self)

    def close(self) -> None:
        """Stop counting it."""
        if self._is_open:
            self._is_open = False
            self._counts.forget(self)


class LimitedConnection(asyncio.Protocol):
    """First protocol of a new connection: it aborts the connection if there are too many, or hands it to the protocol that
    `make_protocol` returns for the connection and its local port. That one must call `speak` and `close`."""

    def __init__(
        self, counts: ConnectionCounts, make_protocol: Callable[[CountedConnection, int], asyncio.BaseProtocol]
    ) -> None:
        self._counts, self._make_protocol = counts, make_protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        descriptor = transport.get_extra_info("socket").fileno()
        connection = self._counts.open(peer[0] if peer else "", transport.abort, descriptor)
        if connection is None:
            transport.abort()
            return
        local = transport.get_extra_info("sockname")
        protocol = self._make_protocol(connection, local[1] if local else 0)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
