"""Reaches pods and services for clients that ask the proxy for them: many do not read address ranges in `no_proxy` (urllib, httpx,
aiohttp), and none knows short names.

A name means what the pod's hosts file says, and the connection is made *in the pod's own network*. So the proxy leads a pod
to nothing that it cannot reach itself, and the other side sees the pod's address, as without a proxy.
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
    """Resolves names as a pod does, and connects from its network."""

    names: Callable[[], PodNames]
    """Returns the contents of the hosts files."""
    open_socket: Callable[[str], Awaitable[socket.socket]]
    """A pod's uid → an unconnected socket in its network. Raises ApiError."""

    def find_addresses(self, host: str, client: str) -> list[str]:
        """The addresses of `host` for the pod at address `client`; an address of the pods' network is its own; [] for all else."""
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
        """Whether the address is a pod's, or the pod's own loopback, which only its own alias can name. The proxy's own is not."""
        found = plain_address(ipaddress.ip_address(address))
        if (str(found), port) == (netns.GATEWAY, netns.PROXY_PORT):
            return False
        return found in POD_NETWORK or found.is_loopback

    async def connect(self, client: str, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects from the pod at address `client`. Raises OSError."""
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
