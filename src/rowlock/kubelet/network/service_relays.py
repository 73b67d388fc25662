"""Services with addresses of their own: connections to one are relayed to a ready pod, as kube-proxy does.

The pod host listens at the address in the pods' network, and the server copies the bytes. Where pods have no networks of
their own, a port of this machine stands for the Service's, and the variables of pods name it. A node port is a port of this
machine's loopback. Only TCP is supported.
"""

import asyncio
import contextlib
import itertools
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import ApiError
from rowlock.kubelet.network.gateway import SocketSource
from rowlock.kubelet.network.loopback_relay import LoopbackRelay, Streams
from rowlock.kubelet.network.pod_network import LOOPBACK, PodNetwork
from rowlock.kubelet.network.pod_reach import PodReach
from rowlock.objects import Key, Object, dig, is_deleting, key, labels, namespace, phase, uid
from rowlock.system import service_addresses

MAX_CONNECTIONS, MAX_PER_CLIENT = 1024, 128
"""Limits for one port of a Service."""
_RETRY = 1.0
"""Seconds until a port that could not be opened is tried again."""


@dataclass(frozen=True, slots=True)
class Door:
    """A listener for a port of a Service."""

    service: Key
    address: str
    number: int
    """The port at that address."""
    port: int
    """The Service's port that it leads to."""
    is_inside: bool
    """Whether it is in the network of pods that are processes; if not, it is on this machine."""
    is_of_engine: bool = False
    """Whether it is at this machine's address in the engine's network."""


@dataclass(slots=True)
class ServiceRelays:
    """The relays of all Services of this machine's cluster."""

    view: View
    network: PodNetwork
    host: SocketSource
    dial: Callable[[Key, int], Awaitable[socket.socket]]
    """A connection to a pod's port. Raises ApiError, OSError."""
    record_event: Callable[[Object, str, str, str, str], None]
    listen_in_engine: Callable[[int], Awaitable[socket.socket]]
    """A listener at a port of this machine's address in the engine's network. Raises ApiError, OSError."""
    _open: dict[Door, "asyncio.Task[None]"] = field(default_factory=dict)
    _told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of a Service → what events have said of it."""
    _turn: Iterator[int] = field(default_factory=itertools.count)

    async def run(self) -> None:
        """Opens and closes relays until cancelled."""
        try:
            while True:
                self.network.services_changed.clear()
                self._tell_unmet_wishes()
                wanted = {door for service in self.network.addressed.values() for door in self._doors(service)}
                await self._close([door for door in self._open if door not in wanted])
                for door in wanted - self._open.keys():
                    self._open[door] = asyncio.create_task(self._serve(door))
                await self.network.services_changed.wait()
        finally:
            await self._close(list(self._open))

    def _tell_unmet_wishes(self) -> None:
        """Records once what of each Service has no effect here, such as ports over UDP."""
        unmet = {uid(service): tuple(service_addresses.notes(service)) for service in self.network.addressed.values()}
        for service in self.network.addressed.values():
            for sentence in unmet[uid(service)]:
                if sentence not in self._told.get(uid(service), ()):
                    self.record_event(service, "Warning", "Unsupported", sentence, "")
        self._told = unmet

    def _doors(self, service: Object) -> Iterator[Door]:
        own, address = key(service), str(dig(service, "spec.clusterIP"))
        for port in dig(service, "spec.ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                continue
            number = int(port["port"])
            where = self.network.service_place(own, address, number)
            yield Door(own, *where, number, is_inside=self.network.has_namespaces)
            if self.network.engine_address:
                where = self.network.engine_place(own, address, number)
                yield Door(own, *where, number, is_inside=False, is_of_engine=True)
            if port.get("nodePort"):
                yield Door(own, LOOPBACK, int(port["nodePort"]), number, is_inside=False)

    async def _close(self, doors: list[Door]) -> None:
        tasks = [self._open.pop(door) for door in doors]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        for door in doors:
            if door.is_inside:
                with contextlib.suppress(ApiError):
                    await self.host.ask("end-service", address=door.address, port=door.number)

    async def _serve(self, door: Door) -> None:
        told = ""
        while True:
            try:
                listener = await self._listen(door)
            except (ApiError, OSError) as error:
                if not (door.is_inside or door.is_of_engine) and told != str(
                    error
                ):  # inside, a new pod host is being started
                    told = str(error)
                    self._tell_closed(door, getattr(error, "strerror", None) or told)
            else:
                with listener:
                    relay = LoopbackRelay(
                        listener, connect_for=self._connector(door), per_peer=MAX_PER_CLIENT, limit=MAX_CONNECTIONS
                    )
                    if not door.is_inside:
                        return await relay.run()
                    await run_until_first_ends(relay.run(), self.host.disconnected.wait())
            await asyncio.sleep(_RETRY)

    async def _listen(self, door: Door) -> socket.socket:
        if door.is_inside:
            return await self.host.request_socket("service", address=door.address, port=door.number)
        if door.is_of_engine:
            return await self.listen_in_engine(door.number)
        return socket.create_server((door.address, door.number))

    def _tell_closed(self, door: Door, problem: str) -> None:
        if service := self.network.addressed.get(door.service):
            text = f"{door.address}:{door.number} of this machine does not lead to port {door.port} of the Service ({problem}); it is tried again"
            self.record_event(service, "Warning", "ServicePortNotOpen", text, "")

    def _connector(self, door: Door) -> Callable[[str], Awaitable[Streams]]:
        async def connect(client: str) -> Streams:
            service = self.network.addressed.get(door.service)
            port = next((p for p in dig(service or {}, "spec.ports") or () if p["port"] == door.port), None)
            found = self._backends(service, port) if service and port else []
            if not found:
                raise ConnectionRefusedError(f"no pod of the Service {door.service.name} is ready")
            is_sticky = dig(service or {}, "spec.sessionAffinity") == "ClientIP"
            turn = zlib.crc32(client.encode()) if is_sticky else next(self._turn)
            pod, number = found[turn % len(found)]
            address = self.network.names.pods.get(pod, "")
            try:
                if door.is_inside and address:
                    reach = PodReach(lambda: self.network.names, self._open_socket)
                    return await reach.connect(client, address, number)
                return await asyncio.open_connection(sock=await self.dial(pod, number))
            except ApiError as error:
                raise ConnectionError(str(error)) from None

        return connect

    async def _open_socket(self, pod_uid: str) -> socket.socket:
        return await self.host.request_socket("socket", uid=pod_uid)

    def _backends(self, service: Object, port: Mapping[str, Any]) -> list[tuple[Key, int]]:
        """The pods behind the Service now, and their ports."""
        selector, has_unready = dig(service, "spec.selector") or {}, dig(service, "spec.publishNotReadyAddresses")
        if not selector:
            return []
        label, value = next(iter(selector.items()))
        found = []
        for pod in self.view.by_label(kinds.POD, namespace(service), label, value):
            is_behind = selector.items() <= labels(pod).items() and (has_unready or _is_ready(pod))
            if is_behind and (number := target_port(pod, port)):
                found.append((key(pod), number))
        return sorted(found)


def _is_ready(pod: Object) -> bool:
    if is_deleting(pod) or phase(pod) != "Running":
        return False
    conditions = dig(pod, "status.conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def target_port(pod: Object, port: Mapping[str, Any]) -> int:
    """The number of a Service's `targetPort` in this pod; 0 where no container has a port of that name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    containers = dig(pod, "spec.containers") or ()
    named = (p for c in containers for p in c.get("ports") or () if p.get("name") == target)
    return next((int(p["containerPort"]) for p in named), 0)
