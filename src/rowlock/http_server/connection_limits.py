"""How many connections the server holds, in all and for one address: the rest of its descriptors are for the journal,
logs and pods.

Where there are too many, the one that has been silent for longest makes room: one that has asked for nothing yet. Who opens
hundreds and says nothing, as a pod can, keeps nobody out, though loopback is one client for all pods and the owner.

A connection is judged when it has a transport, not when asyncio asks for its protocol: a crowd that is accepted in one
turn of the event loop has asked for all its protocols before the first of them counts as open.
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
"""Connections of one address of another machine; fewer where the server may open few files."""
LOOPBACK = "loopback"
ACCEPT_LIMIT = 100
"""Connections accepted in one turn of the event loop; fewer where the server may open few files."""

ACCEPT_QUEUE = 2_048
"""Connections that the kernel holds until they are accepted."""


_ROOM = 32
"""Silent connections that are closed when no descriptor is left to accept with."""
_COUNT_INTERVAL = 0.25
"""Seconds between two counts of the descriptors: a count reads a directory of them."""


def connection_limit(others: int = 0) -> int:
    """Connections at a time: three quarters of the descriptors, and fewer where `others` hold more than an eighth. Each pod
    that runs holds one; were there none left, `accept` would fail, and asyncio waits a second before it tries again."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(min(soft * 3 // 4, soft * 7 // 8 - others), 16)


def count_descriptors() -> int:
    """How many this process has open; all of them where none is left to count with."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def client_limit(client: str, total: int) -> int:
    """Connections of one client (see `client_of`) out of `total`: loopback's are those of the owner and of all pods."""
    return total * 7 // 8 if client == LOOPBACK else min(total // 4, REMOTE_LIMIT)


def accept_limit(total: int) -> int:
    """Connections to accept in one turn, out of `total`: until those too many are closed again, three turns later, they
    must fit into the quarter of the descriptors that is not for connections, beside files that are read meanwhile."""
    return max(1, min(total // 36, ACCEPT_LIMIT))


@lru_cache(maxsize=1024)
def client_of(host: str) -> str:
    """Whom an address counts for: loopback is one client, and so are the addresses of one IPv6 network, as one machine has
    them all."""
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
        """`descriptors`: those of the open connections are kept in it, for who sees to them first."""
        self._descriptors = descriptors if descriptors is not None else set()
        self._total = 0
        self._by_client: Counter[str] = Counter()
        self._silent: dict[str, dict[CountedConnection, None]] = {}
        """By client, those that have asked for nothing yet, the oldest first."""
        self._others, self._next_count = 0, 0.0

    def open(self, host: str, cut: Callable[[], None], descriptor: int = -1) -> CountedConnection | None:
        """Count one more of this address. `cut` ends it, should another need its place. None: it is one too many itself."""
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
        """Descriptors that are no connections, as they were a moment ago."""
        now = time.monotonic()
        if now >= self._next_count:
            self._next_count = now + _COUNT_INTERVAL
            self._others = max(0, count_descriptors() - self._total)
        return self._others

    def _cut_oldest(self, client: str) -> bool:
        """Of this client; nobody makes room for another."""
        oldest = next(iter(self._silent.get(client, ())), None)
        if oldest is None:
            return False
        oldest.close()
        oldest.cut()
        return True

    def make_room(self) -> int:
        """Closes silent connections, of who has most of them, the oldest first; how many."""
        closed = 0
        while self._silent and closed < _ROOM:
            self._cut_oldest(max(self._silent, key=lambda client: len(self._silent[client])))
            closed += 1
        return closed

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception handler of the event loop. Where `accept` finds no descriptor, asyncio tries again after a second, and
        so on until one is free: those who hold them and say nothing make room. All else is told as asyncio does."""
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            log.warning(
                "no descriptor is free: %d connections that have asked for nothing are closed", self.make_room()
            )
        else:
            loop.default_exception_handler(context)

    def forget_silence(self, connection: CountedConnection) -> None:
        """It has asked for something, or has gone."""
        silent = self._silent.get(connection.client, {})
        silent.pop(connection, None)
        if not silent:
            self._silent.pop(connection.client, None)

    def forget(self, connection: CountedConnection) -> None:
        """It has gone."""
        self.forget_silence(connection)
        self._descriptors.discard(connection.descriptor)
        self._total -= 1
        self._by_client[connection.client] -= 1
        if not self._by_client[connection.client]:
            del self._by_client[connection.client]


class CountedConnection:
    """One that is open. `speak` is called with its first request, `close` when it has gone; both may be called again."""

    __slots__ = ("_counts", "_is_open", "client", "cut", "descriptor")

    def __init__(self, counts: ConnectionCounts, client: str, cut: Callable[[], None], descriptor: int) -> None:
        self._counts, self.client, self.cut, self.descriptor = counts, client, cut, descriptor
        self._is_open = True

    def speak(self) -> None:
        """It may stay, however many there are."""
        self._counts.forget_silence(self)

    def close(self) -> None:
        """Its place is free."""
        if self._is_open:
            self._is_open = False
            self._counts.forget(self)


class LimitedConnection(asyncio.Protocol):
    """What asyncio gives a new connection to: closed before it costs anything, or passed on to the protocol that is made
    for it, and for the port it came to (which says when it speaks, and when it has gone)."""

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
