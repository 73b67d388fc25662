"""Pods and services for clients that ask the proxy for them: many read no address ranges in `no_proxy` (urllib, httpx,
aiohttp), and none a short name.

A name means what the pod's hosts file says, and the connection is made *in the pod's own network*. So the proxy leads a pod
to nothing that it does not reach by itself, and the other side sees the pod's address, as without a proxy.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rowlock.errors import ApiError
from rowlock.kubelet.network.egress_policy import POD_NETWORK, plain_address
from rowlock.kubelet.network.hosts import PodNames
from rowlock.kubelet.shim import netns


@dataclass(frozen=True, slots=True)
class PodReach:
    """Knows who is called what, and how to get a socket of a pod's network."""

    names: Callable[[], PodNames]
    """What the hosts files say now."""
    open_socket: Callable[[str], Awaitable[socket.socket]]
    """A pod's uid → a socket of its network, not connected yet. Raises ApiError."""

    def find_addresses(self, host: str, client: str) -> list[str]:
        """What the pod at address `client` calls `host`: itself if it is an address of the pods' network; [] for all else."""
        names = self.names()
        owner = names.owners.get(client)
        if owner is None:
            return []
        try:
            address = plain_address(ipaddress.ip_address(host))
        except ValueError:
            return names.find_addresses(host, owner)
        return [str(address)] if address in POD_NETWORK else []

    def is_inside(self, address: str, port: int) -> bool:
        """Is it a pod's, or the pod's own loopback, which only an alias of its own can name? The proxy leads not to itself."""
        found = plain_address(ipaddress.ip_address(address))
        if (str(found), port) == (netns.GATEWAY, netns.PROXY_PORT):
            return False
        return found in POD_NETWORK or found.is_loopback

    async def connect(self, client: str, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """From the pod at address `client`. Raises OSError."""
        owner = self.names().owners.get(client)
        if owner is None:
            raise OSError(f"there is no pod at {client} any more")
        try:
            connection = await self.open_socket(owner.name)
        except ApiError as error:
            raise OSError(str(error)) from None
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
            return await asyncio.open_connection(sock=connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) and error.errno:
                raise OSError(f"{address}:{port}: {os.strerror(error.errno)}") from None
            raise
