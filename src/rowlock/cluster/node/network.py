"""Which pod network is in force, and what a pod needs of it: names and addresses, or names and ports rewritten.

`namespaces`: the fabric (`fabric.py`) with hosts files (`hosts.py`), kept here. `rewrite`: everything on loopback,
`rewriting.py` with the free ports that are handed out here. The choice is made once, at the start, by trying.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.cluster.node import hosts, rewriting
from rowlock.cluster.node.facts import write_fact
from rowlock.cluster.node.pod_directory import PodCard
from rowlock.errors import Invalid, Unavailable
from rowlock.objects import Key, Object, key, namespace, phase
from rowlock.objects import name as name_of
from rowlock.objects import uid as uid_of

MODES = ("auto", "namespaces", "rewrite")
LOOPBACK = rewriting.LOOPBACK
FREE = (20000, 30000)
"""Where ports are taken from that stand for the pods' own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The mode in force and why, in one sentence."""

    mode: str
    why: str


def choose(wanted: str, fabric: bool, problem: str) -> Choice:
    """What to do, after trying. Raises Invalid when namespaces were demanded and are not to be had."""
    if wanted == "rewrite":
        return Choice("rewrite", "asked for: names become 127.0.0.1 and ports free ones")
    if fabric:
        return Choice("namespaces", "every pod has its own network namespace, real names and real ports")
    if wanted == "namespaces":
        raise Invalid(f"network namespaces cannot be made here ({problem}); start with --network rewrite")
    return Choice("rewrite", f"network namespaces cannot be made here ({problem}); names and ports are rewritten")


@dataclass(slots=True)
class PodNetwork:
    """What the kubelet asks about the network; knows the mode."""

    data: Path
    view: View
    choice: Choice = Choice("rewrite", "")
    _addresses: hosts.Addresses = field(default_factory=hosts.Addresses)
    _ports: dict[str, int] = field(default_factory=dict)
    _written: dict[str, str] = field(default_factory=dict)
    dirty: bool = True
    prefix: str = ""
    """How the addresses of pods in containers begin (`10.77`); "" while there are none."""
    contained: Callable[[Object], bool] = lambda pod: False
    """Does the pod run in containers? They have the engine's network, whatever the mode."""

    @property
    def real(self) -> bool:
        return self.choice.mode == "namespaces"

    def real_for(self, pod: Object) -> bool:
        """Has this pod an address, names and ports of its own?"""
        return self.real or self.contained(pod)

    def contain(self, prefix: str) -> None:
        """The engine's network is there."""
        self.dirty = self.dirty or self.prefix != prefix
        self.prefix = prefix

    def container_address(self, pod: Object) -> str:
        """The address of a pod in containers: the same in another network; with `hostNetwork` the machine's in it."""
        if (pod.get("spec") or {}).get("hostNetwork"):
            return f"{self.prefix}.0.1"
        return f"{self.prefix}.{'.'.join(self._addresses.of(uid_of(pod)).split('.')[2:])}"

    def restore(self, cards: Iterable[PodCard]) -> None:
        """What was given out before this server started."""
        for card in cards:
            if card.contained:
                self.prefix = ".".join(card.ip.split(".")[:2])
            if card.ip and card.ip != LOOPBACK:
                self._addresses.restore(card.uid, ".".join([hosts.PREFIX, *card.ip.split(".")[2:]]))
        try:
            self._ports = json.loads((self.data / "ports.json").read_bytes())
        except (OSError, ValueError):
            self._ports = {}

    def address(self, uid: str) -> str:
        return self._addresses.of(uid) if self.real else LOOPBACK

    def release(self, pod: PodCard) -> None:
        self._addresses.release(pod.uid)
        self.dirty = True
        mine = [k for k in self._ports if k.startswith(f"{pod.namespace}/{pod.name}:")]
        for entry in mine:
            del self._ports[entry]

    def hosts_file(self, home: str) -> Path:
        return self.data / "hosts" / home

    def write_hosts(self) -> None:
        """Brings the hosts files up to date, in place: they are mounted in pods."""
        self.dirty = False
        if not self.real and not self.prefix:
            return
        pods = [p for p in self.view.all(kinds.POD) if phase(p) not in ("Succeeded", "Failed")]
        pods = pods if self.real else [p for p in pods if self.contained(p)]
        addresses = {key(p): self._seen(p) for p in pods}
        services: dict[Key, list[str]] = {}
        for service in self.view.all(kinds.SERVICE):
            if key(service) not in addresses:
                services[key(service)] = [addresses[key(p)] for p in hosts.selected(service, pods)]
        for home in {pod.namespace for pod in addresses}:
            self._write(home, hosts.render(home, addresses, services))

    def _seen(self, pod: Object) -> str:
        """Where others find it."""
        inside = self.prefix and self.contained(pod)
        return self.container_address(pod) if inside else self._addresses.of(uid_of(pod))

    def _write(self, home: str, text: str) -> None:
        path = self.hosts_file(home)
        if self._written.get(home) == text and path.exists():
            return
        path.parent.mkdir(exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(fd, text.encode())
            os.ftruncate(fd, len(text.encode()))
        finally:
            os.close(fd)
        self._written[home] = text

    def rewritten(self, pod: Object, env: dict[str, str]) -> dict[str, str]:
        """The environment as this network needs it."""
        if self.real:
            return env
        changed = rewriting.rewrite(env, f"{namespace(pod)}/{name_of(pod)}", self._known(pod), self._free)
        if changed != env:
            write_fact(str(self.data / "ports.json"), self._ports)
        return changed

    def hostfile(self, pod: Object) -> Callable[[str], str]:
        """How an MPI hostfile reads on this network."""
        return lambda text: rewriting.hostfile(text, self._known(pod))

    def _known(self, pod: Object) -> Callable[[str], str]:
        home = namespace(pod)

        def known(text: str) -> str:
            name, _, rest = text.partition(".")
            where = rest.partition(".")[0] or home
            found = self.view.get(kinds.POD, where, name) or self.view.get(kinds.SERVICE, where, name)
            return f"{where}/{name}" if found is not None else ""

        return known

    def port(self, pod: Key, port: int) -> int:
        """Where a pod's port is found: itself, or what stands for it on this machine."""
        return port if self.real else self._ports.get(f"{pod.namespace}/{pod.name}:{port}", port)

    def _free(self, pod: str, port: int) -> int:
        """The machine's port that stands for a pod's port; the same whenever asked."""
        entry = f"{pod}:{port}"
        if entry not in self._ports:
            self._ports[entry] = _unused_port(set(self._ports.values()))
        return self._ports[entry]

    def request(self, pod: Object, ip: str) -> dict[str, Any] | None:
        """What the pod host is told about a pod's network."""
        if not self.real:
            return None
        hosts_file = str(self.hosts_file(namespace(pod)))
        return {"uid": uid_of(pod), "ip": ip, "hosts": hosts_file, "hostname": hostname(pod)}


def hostname(pod: Object) -> str:
    """`spec.hostname`, else the pod's name, cut to what the kernel takes."""
    return str((pod.get("spec") or {}).get("hostname") or name_of(pod))[:63].rstrip("-.")


def _unused_port(taken: set[int]) -> int:
    """A free port below the range from which the kernel takes ports for outgoing connections."""
    for port in range(*FREE):
        if port not in taken:
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("", port))
                return port
    raise Unavailable(f"no free port between {FREE[0]} and {FREE[1]} for the pods' network")
