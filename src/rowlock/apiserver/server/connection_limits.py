"""How many connections the server holds, in all and for one address: the rest of its descriptors are for the journal,
logs and pods.

A connection is judged when it has a transport, not when asyncio asks for its protocol: a crowd that is accepted in one
turn of the event loop has asked for all its protocols before the first of them counts as open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

REMOTE_LIMIT = 1_024
"""Connections of one address of another machine; fewer where the server may open few files."""
LOOPBACK = "loopback"
ACCEPT_LIMIT = 100
"""Connections accepted in one turn of the event loop; fewer where the server may open few files."""

ACCEPT_QUEUE = 2_048
"""Connections that the kernel holds until they are accepted."""


def connection_limit() -> int:
    """Connections at a time: three quarters of the descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft * 3 // 4, 16)


def client_limit(client: str, total: int) -> int:
    """Connections of one client (see `client_of`) out of `total`: loopback's are those of the owner and of all pods."""
    return total * 7 // 8 if client == LOOPBACK else min(total // 4, REMOTE_LIMIT)


def accept_limit(total: int) -> int:
    """Connections to accept in one turn, out of `total`: until those too many are closed again, three turns later, they
    must fit into the quarter of the descriptors that is not for connections."""
    return max(1, min(total // 24, ACCEPT_LIMIT))


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

    def __init__(self) -> None:
        self._total = 0
        self._by_client: Counter[str] = Counter()

    def open(self, host: str) -> Callable[[], None] | None:
        """Count one more of this address; what to call when it has gone. None: it is one too many."""
        client, limit = client_of(host), connection_limit()
        if self._total >= limit or self._by_client[client] >= client_limit(client, limit):
            return None
        self._total += 1
        self._by_client[client] += 1
        return lambda: self._close(client)

    def _close(self, client: str) -> None:
        self._total -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class LimitedConnection(asyncio.Protocol):
    """What asyncio gives a new connection to: closed before it costs anything, or passed on to the protocol that is made
    for it (which gets what to call when it has gone)."""

    def __init__(
        self, counts: ConnectionCounts, make_protocol: Callable[[Callable[[], None]], asyncio.BaseProtocol]
    ) -> None:
        self._counts, self._make_protocol = counts, make_protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        on_close = self._counts.open(peer[0] if peer else "")
        if on_close is None:
            transport.abort()
            return
        protocol = self._make_protocol(on_close)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
