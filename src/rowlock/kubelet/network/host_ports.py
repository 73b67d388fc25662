"""`hostPort`: a port of this machine's loopback that leads to a port of a pod, from when the pod is bound until it has ended.

On a cluster the port is open at every address of the node. Here it is open on loopback only, so that other machines do not
reach every pod. Where a pod has the machine's network, its program listens itself.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rowlock import kinds
from rowlock.api import View
from rowlock.controllers.waiters import run_until_first_ends
from rowlock.errors import ApiError
from rowlock.kubelet.network.env_rewrite import LOOPBACK
from rowlock.kubelet.network.loopback_relay import LoopbackRelay, Streams
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import Key, Object

MAX_CONNECTIONS = 64
"""Most connections of one client address to a host port."""
_LOOK = 0.5
"""Seconds between checks for ended pods with such ports."""
_PRIVILEGED = 1024


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address of this machine, and the pod's port behind it."""

    address: str
    number: int
    pod_port: int
    is_allowed: bool
    """Whether the pod's program could listen there itself."""


@dataclass(slots=True)
class _PodPorts:
    pod: Object
    ports: tuple[HostPort, ...]
    open: dict[HostPort, "asyncio.Task[None]"] = field(default_factory=dict)
    told: dict[HostPort, str] = field(default_factory=dict)
    """Port → the problem that its last event reported; "" = none."""


def host_ports(pod: PodSpec) -> Iterator[HostPort]:
    """The TCP host ports that the pod requests; a hostIP of loopback is kept."""
    for container in (*pod.main_containers, *pod.sidecars):
        user = pod.container_security_context(container).get("runAsUser") or 0
        for port in container.ports:
            number, address = int(port.get("hostPort") or 0), str(port.get("hostIP") or "")
            if number and port.get("protocol", "TCP") == "TCP":
                local = address if address.startswith("127.") else LOOPBACK
                yield HostPort(local, number, int(port["containerPort"]), user == 0 or number >= _PRIVILEGED)


@dataclass(slots=True)
class HostPorts:
    """The host ports of all pods of this machine."""

    view: View
    pod_states: Mapping[str, PodState]
    dial: Callable[[Key, int], Awaitable[socket.socket]]
    """A connection to a pod's port. Raises ApiError, OSError."""
    record_event: Callable[[Object, str, str, str, str], None]
    has_namespaces: bool
    """Whether pods have networks of their own."""
    _pods: dict[str, _PodPorts] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note_pod(self, pod_key: Key) -> None:
        """Notes a pod that has been bound to a node of this machine."""
        pod = self.view.get(kinds.POD, *pod_key)
        state = self.pod_states.get(str(pod["metadata"]["uid"])) if pod else None
        if pod is None or state is None or (spec := state.spec_of(pod)).uid in self._pods:
            return
        ports = tuple(p for p in host_ports(spec) if self._is_led(p, spec, contained=state.card.contained))
        if ports:
            self._pods[spec.uid] = _PodPorts(pod, ports)
            self._changed.set()

    def _is_led(self, port: HostPort, pod: PodSpec, *, contained: bool) -> bool:
        if contained:
            return not pod.host_network
        return self.has_namespaces or port.number != port.pod_port

    async def run(self) -> None:
        """Opens and closes host ports until cancelled."""
        for state in list(self.pod_states.values()):
            if any(state.live_runs()):  # the others are noted with their first turn
                self.note_pod(state.card.key)
        try:
            while True:
                self._changed.clear()
                await self._close_ended()
                for ports in list(self._pods.values()):
                    self._open_ports(ports)
                await run_until_first_ends(self._changed.wait(), timeout=_LOOK if self._pods else None)
        finally:
            await self._close([task for ports in self._pods.values() for task in ports.open.values()])
            self._pods.clear()

    async def _close_ended(self) -> None:
        ended = [u for u in self._pods if u not in self.pod_states or self.pod_states[u].finished]
        await self._close([task for uid in ended for task in self._pods.pop(uid).open.values()])

    async def _close(self, tasks: list["asyncio.Task[None]"]) -> None:
        """Ends the listeners; open connections may last longer."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    def _open_ports(self, ports: _PodPorts) -> None:
        key = Key(ports.pod["metadata"]["namespace"], ports.pod["metadata"]["name"])
        for port in ports.ports:
            if not port.is_allowed:
                self._tell(ports, port, "its user may not listen on ports below 1024")
                continue
            task = ports.open.get(port)
            if task is not None and not task.done():
                continue
            try:
                listener = socket.create_server((port.address, port.number))
            except OSError as error:
                self._tell(ports, port, error.strerror or str(error))
                continue
            relay = LoopbackRelay(listener, connect_for=self._connector(key, port), per_peer=MAX_CONNECTIONS)
            ports.open[port] = asyncio.create_task(relay.run())
            self._tell(ports, port)

    def _connector(self, key: Key, port: HostPort) -> Callable[[str], Awaitable[Streams]]:
        async def connect(_: str) -> Streams:
            try:
                return await asyncio.open_connection(sock=await self.dial(key, port.pod_port))
            except ApiError as error:  # the pod does not run
                raise ConnectionError(str(error)) from None

        return connect

    def _tell(self, ports: _PodPorts, port: HostPort, problem: str = "") -> None:
        """Records an event when a port's problem changes: where the port leads, or why it does not."""
        if ports.told.get(port) == problem:
            return
        ports.told[port] = problem
        where = f"{port.address}:{port.number} of this machine"
        if not problem:
            text = f"{where} leads to port {port.pod_port} of the pod"
            return self.record_event(ports.pod, "Normal", "HostPort", text, "")
        text = (
            f"hostPort {port.number}: {where} does not lead to the pod ({problem}); it is tried again while the pod runs. "
            f"Other pods reach its port {port.pod_port} by its name, you by kubectl port-forward"
        )
        self.record_event(ports.pod, "Warning", "HostPortNotOpen", text, "")
