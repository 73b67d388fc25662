"""The listeners at the gateway's address in the pods' network: the proxy, the API server, and opened ports of the machine.

The pod host makes the listening sockets; they are requested again whenever a new pod host has taken its place.
"""

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import ApiError
from rowlock.kubelet.network.egress_proxy import EgressProxy
from rowlock.kubelet.network.loopback_relay import LoopbackRelay
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.network.pod_reach import PodReach
from rowlock.kubelet.shim import netns

_DIAL_THREADS = 8
"""A pool for connections between pods through the proxy only: pods may request many, and can stop the
pod host."""
_RETRY = 0.2
"""Seconds until a socket is requested again."""


class SocketSource(Protocol):
    """The pod host's client."""

    disconnected: asyncio.Event
    """Set when the connection to the pod host is lost."""

    async def request_socket(
        self, op: str, *, threads: ThreadPoolExecutor | None = None, **request: Any
    ) -> socket.socket:
        """Requests a socket from the pod host. Raises ApiError."""

    async def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The pod host's answer to any other request."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway of the pods' network; only where pods have namespaces."""

    host: SocketSource
    network: PodNetwork
    api_port: int
    """The API server's on loopback; 0 = there is none."""
    host_ports: tuple[int, ...]
    """Ports of this machine's loopback that the owner has opened to pods."""

    def services(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Name of each listener → what serves it until cancelled."""
        if not self.network.has_namespaces:
            return {}
        services: dict[str, Callable[[], Awaitable[None]]] = {"the pods' proxy": self._serve_proxy}
        if self.api_port:
            to_server = functools.partial(self._serve_port, netns.API_PORT, self.api_port)
            services["the pods' way to the API server"] = to_server
        for port in self.host_ports:
            to_machine = functools.partial(self._serve_port, port, port, "localhost")
            services[f"the pods' way to port {port} of this machine"] = to_machine
        return services

    async def _serve_proxy(self) -> None:
        threads = ThreadPoolExecutor(_DIAL_THREADS, "pod-dial")
        reach = PodReach(
            lambda: self.network.names, lambda uid: self.host.request_socket("socket", threads=threads, uid=uid)
        )
        try:
            await self._serve(
                lambda listener: EgressProxy(listener, os.environ, api_port=self.api_port, reach=reach).run(), "proxy"
            )
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _serve_port(self, port: int, local_port: int, host: str = "127.0.0.1") -> None:
        """Serves a port of the gateway that leads to a port of this machine's loopback."""
        await self._serve(lambda listener: LoopbackRelay(listener, local_port, host).run(), "port", port=port)

    async def _serve(self, serve: Callable[[socket.socket], Awaitable[None]], op: str, **request: Any) -> None:
        while True:
            with contextlib.suppress(ApiError, OSError):
                with await self.host.request_socket(op, **request) as listener:
                    await run_until_first_ends(serve(listener), self.host.disconnected.wait())
            await asyncio.sleep(_RETRY)
