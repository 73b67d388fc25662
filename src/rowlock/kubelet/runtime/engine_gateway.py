"""This machine's address in the engine's network: where programs in containers find the API server and Services.

The address is the bridge's. The engine may have a network namespace of its own, so the sockets are made in the namespace of the
process behind the engine's socket. Where that cannot be entered (an engine without root, or in a virtual machine), containers reach
neither, and `problem` says why.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import ApiError
from rowlock.kubelet.network.gateway import SocketSource
from rowlock.kubelet.network.loopback_relay import LoopbackRelay
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.shim import netns
from rowlock.kubelet.shim.engine_client import Engine

_RETRY, _PATIENCE = 5.0, 3.0
"""Seconds until the port is tried again; for which a first container waits for it."""
_BACKLOG = 100
_FREEBIND = 15
"""IP_FREEBIND of <linux/in.h>: Podman's bridge has its address only when the first container has started."""


@dataclass(slots=True)
class EngineGateway:
    """The listeners in the engine's network."""

    network: PodNetwork
    host: SocketSource
    engine: Callable[[], Engine | None]
    api_port: int
    """The API server's on loopback; 0 = there is none."""
    _is_tried: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serves the API server's port in the engine's network, whenever there is one, until cancelled. Without an API server it only
        finds out whether containers reach this machine."""
        network = self.network
        while True:
            await network.engine_network_made.wait()
            network.engine_network_made.clear()
            try:
                listener = await self.listen(netns.API_PORT)
            except (ApiError, OSError) as error:
                network.engine_problem = getattr(error, "strerror", None) or str(error)
                self._is_tried.set()
                await run_until_first_ends(network.engine_network_made.wait(), timeout=_RETRY)
                network.engine_network_made.set()
                continue
            network.engine_problem = ""
            self._is_tried.set()
            with listener:
                served = LoopbackRelay(listener, self.api_port).run() if self.api_port else asyncio.Event().wait()
                await run_until_first_ends(served, network.engine_network_made.wait())

    async def wait_until_tried(self) -> None:
        """Waits until it is known whether containers reach this machine: their variables depend on that."""
        await run_until_first_ends(self._is_tried.wait(), timeout=_PATIENCE)

    async def listen(self, port: int) -> socket.socket:
        """A listening socket at this machine's address in the engine's network. Raises OSError, ApiError."""
        engine, address = self.engine(), self.network.engine_address
        if engine is None or not address:
            raise OSError(errno.ENETUNREACH, "the engine has no network for pods yet")
        pid = await asyncio.to_thread(_pid_behind, engine.path)
        made = socket.socket() if _shares_network(pid) else await self.host.request_socket("socket", uid="", pid=pid)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if engine.name == "podman":
                made.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
            made.bind((address, port))
            made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
        return made


def _pid_behind(path: str) -> int:
    """The process that listens at a unix socket. Raises OSError, also when that is no process of this machine."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise OSError(errno.ENOTSUP, "this system does not say which process the engine is")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_PATIENCE)
        client.connect(path)
        pid: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if pid <= 0:
        raise OSError(errno.ESRCH, "the engine is no process of this machine")
    return pid


def _shares_network(pid: int) -> bool:
    """Whether a process has this one's network. One that we may not look at is taken for such: root's engine mostly has it."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except PermissionError:
        return True
