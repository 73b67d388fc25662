"""Which pod network is in use, and what a pod needs of it: names and addresses, or names and ports rewritten.

`namespaces`: the fabric (`netns.py`) with hosts files (`hosts.py`), kept here. `rewrite`: everything on loopback,
`env_rewrite.py` with the free ports that are assigned here. The choice is made once, at the start, by trying.
"""

import asyncio
import contextlib
import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import Change, ObservedView
from rowlock.errors import Invalid, Unavailable
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.network import command_rewrite, env_rewrite, hosts, name_index
from rowlock.kubelet.network.env_rewrite import service_variables
from rowlock.kubelet.network.name_index import NameIndex
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.kubelet.shim import netns
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.kubelet.shim.shim_request import NetworkSpec
from rowlock.objects import Key, Object, dig, is_deleting, key, namespace
from rowlock.objects import uid as uid_of
from rowlock.system.service_addresses import has_address

LOOPBACK = env_rewrite.LOOPBACK
_MANY_PODS = 500
"""Number of pods from which on hosts files are written in a thread."""
_FORGET_SHARE, _MAX_FORGET_DELAY = 20.0, 2.0
"""How long names of deleted objects stay: this many times the duration of a refresh, and at most this many seconds."""
PORT_RANGE = (20000, 30000)
"""The range of ports that stand for the pods' own."""


@dataclass(frozen=True, slots=True)
class NetworkChoice:
    """The mode in use and why, in one sentence."""

    mode: str
    reason: str


def choose_network(requested: str, fabric: bool, problem: str) -> NetworkChoice:
    """The network to use, after trying. Raises Invalid if namespaces were requested and cannot be made."""
    if requested == "rewrite":
        return NetworkChoice(
            "rewrite", "chosen by --network rewrite: names become 127.0.0.1, and ports become free ones"
        )
    if fabric:
        return NetworkChoice("namespaces", "every pod has its own network namespace, real names and real ports")
    if requested == "namespaces":
        raise Invalid(f"network namespaces cannot be made here ({problem}); start with --network rewrite")
    return NetworkChoice(
        "rewrite", f"network namespaces cannot be made here ({problem}); names and ports are rewritten"
    )


@dataclass(slots=True)
class PodNetwork:
    """The pod network of the kubelet; hides the mode."""

    data: Path
    view: ObservedView
    choice: NetworkChoice
    runs_in_containers: Callable[[Object], bool]
    """Whether the pod runs in containers; those have the engine's network, whatever the mode."""
    has_host_ports: bool = False
    """Whether ports of this machine's loopback are open in the pods' network, which then has a name for this machine."""
    _addresses: hosts.PodAddresses = field(default_factory=hosts.PodAddresses)
    _ports: dict[str, int] = field(default_factory=dict)
    _hosts_texts: dict[str, str] = field(default_factory=dict)
    _names: NameIndex = field(default_factory=NameIndex)
    names: hosts.PodNames = field(default_factory=hosts.PodNames)
    """The contents of the hosts files."""
    dirty: bool = True
    """A name is missing or wrong in the hosts files: no pod starts before they are written."""
    has_old_names: bool = False
    """The hosts files have names of deleted pods or services."""
    refresh_seconds: float = 0.0
    """Seconds that the last refresh took."""
    addressed: dict[Key, Object] = field(default_factory=dict)
    """Services with an address of their own."""
    services_changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `addressed` has changed."""
    _external: dict[Key, str] = field(default_factory=dict)
    """Services that are aliases of other names (`ExternalName`)."""
    prefix: str = ""
    """The first two bytes of addresses of pods in containers (`10.77`); "" while there are none."""
    engine_network_made: asyncio.Event = field(default_factory=asyncio.Event)
    engine_problem: str = "the container engine has no network for pods yet"
    """Why containers do not reach this machine, and so neither the API server nor addresses of Services; "" = they do."""

    @property
    def has_namespaces(self) -> bool:
        return self.choice.mode == "namespaces"

    def has_own_address(self, pod: PodCard) -> bool:
        """Whether the pod has an address, names and ports of its own."""
        return self.has_namespaces or pod.contained

    @property
    def engine_address(self) -> str:
        """This machine's address in the engine's network; "" while there is none."""
        return f"{self.prefix}.0.1" if self.prefix else ""

    def note_change(self, change: Change) -> None:
        """Notes that a pod or a service was added, changed or deleted."""
        assert change.kind is not None
        self._names.note_change(change.kind, key(change.object))
        if change.kind is kinds.SERVICE:
            self._note_service(key(change.object), None if change.type == "Deleted" else change.object)

    def _note_service(self, changed: Key, service: Object | None) -> None:
        self._external.pop(changed, None)
        if service and dig(service, "spec.type") == "ExternalName":
            self._external[changed] = str(dig(service, "spec.externalName"))
        if service and has_address(service):
            self.addressed[changed] = service
            self.services_changed.set()
        elif self.addressed.pop(changed, None):
            self.services_changed.set()
        if service is None:
            self._forget_ports(
                lambda owner: owner.startswith(f"{changed.namespace}/") and owner.endswith(f".{changed.name}")
            )

    def service_place(self, service: Key, address: str, port: int) -> tuple[str, int]:
        """The address and port at which pods run as processes find a port of a Service with an address of its own."""
        if self.has_namespaces:
            return address, port
        return LOOPBACK, self._keep_port(f"service {service.namespace}/{service.name}", port)

    def engine_place(self, service: Key, address: str, port: int) -> tuple[str, int]:
        """The same for pods in containers: a port of this machine's address in their network."""
        return self.engine_address, self._keep_port(f"service {service.namespace}/{service.name}", port)

    def variables_of_services(self, own_namespace: str, *, contained: bool = False) -> dict[str, str]:
        """The variables by which a kubelet tells containers about the Services in their pod's namespace."""
        services = [service for own, service in sorted(self.addressed.items()) if own.namespace == own_namespace]
        return service_variables(services, self.engine_place if contained else self.service_place)

    def mark_dirty(self) -> None:
        """Notes added or changed pods or services: the hosts files are out of date."""
        self.dirty = True

    def note_gone(self) -> None:
        """Notes deleted pods or services: no pod waits until the hosts files drop them."""
        self.has_old_names = True

    @property
    def forget_delay(self) -> float:
        """Seconds to collect names of deleted objects: each refresh scans all pods, and a thousand may be deleted one by one."""
        return min(_FORGET_SHARE * self.refresh_seconds, _MAX_FORGET_DELAY)

    def set_engine_prefix(self, prefix: str) -> None:
        """Sets the prefix of the engine's network, which now exists."""
        self.dirty = self.dirty or self.prefix != prefix
        self.prefix = prefix
        self.note_engine_network()

    def note_engine_network(self) -> None:
        """Notes that the engine has a network, maybe a new one: what listens in it is made anew."""
        self.engine_network_made.set()
        self.services_changed.set()

    def container_address(self, uid: str, *, host_network: bool) -> str:
        """The address of a pod in containers: its own with the engine's prefix; with `hostNetwork` the machine's in that network."""
        if host_network:
            return f"{self.prefix}.0.1"
        return f"{self.prefix}.{'.'.join(self._addresses.address_of(uid).split('.')[2:])}"

    def restore(self, cards: Iterable[PodCard]) -> None:
        """Restores addresses and ports that were assigned before this server started."""
        for card in cards:
            if card.contained:
                self.prefix = ".".join(card.ip.split(".")[:2])
                self.note_engine_network()
            if card.ip and card.ip != LOOPBACK:
                self._addresses.restore(card.uid, ".".join([hosts.PREFIX, *card.ip.split(".")[2:]]))
        stored = untrusted.read_object(str(self.data / "ports.json")) or {}
        self._ports = {entry: port for entry in stored if 0 < (port := untrusted.integer_of(stored, entry, 65535))}

    def address(self, uid: str) -> str:
        return self._addresses.address_of(uid) if self.has_namespaces else LOOPBACK

    def release(self, pod: PodCard) -> None:
        self._addresses.release(pod.uid)
        self.note_gone()
        own = _own_hosts_file(pod.namespace, pod.uid)
        if self._hosts_texts.pop(own, ""):
            (self.data / "hosts" / own).unlink(missing_ok=True)
        self._forget_ports(lambda owner: owner == f"{pod.namespace}/{pod.name}")

    def _forget_ports(self, is_gone: Callable[[str], bool]) -> None:
        """Frees the ports of deleted owners: pods, and hostnames in the domain of a Service."""
        for entry in [entry for entry in self._ports if is_gone(entry.rpartition(":")[0])]:
            del self._ports[entry]

    def hosts_file(self, pod: PodSpec) -> Path:
        """The file to mount at the pod's /etc/hosts: its namespace's, or its own if it adds names to it."""
        return (
            self.data / "hosts" / (_own_hosts_file(pod.namespace, pod.uid) if pod.has_host_aliases else pod.namespace)
        )

    def write_hosts(self) -> None:
        """Brings the hosts files up to date, in place: they are mounted in pods. Raises OSError; the next call tries again."""
        collecting = self._collect_addresses()
        while (entries := next(collecting)) is None:
            continue
        self._write_hosts_files(entries)

    async def refresh_hosts(self) -> None:
        """`write_hosts` for the event loop: it yields between slices, and uses a thread where there are many pods."""
        began = time.monotonic()
        collecting = self._collect_addresses()
        while (entries := next(collecting)) is None:
            await asyncio.sleep(0)  # what changes meanwhile makes it `dirty` again
        if len(entries.pods) < _MANY_PODS:
            self._write_hosts_files(entries)
        else:
            await asyncio.to_thread(self._write_hosts_files, entries)
        self.refresh_seconds = time.monotonic() - began

    def _collect_addresses(self) -> Iterator[hosts.PodNames | None]:
        """Yields None after each slice of the work, and at the end the new contents of the hosts files."""
        self.dirty = self.has_old_names = False
        if not self.has_namespaces and not self.prefix:
            yield hosts.PodNames()
            return
        for _ in self._names.update(self.view):
            yield None
        pods = [pod for _, pod in sorted(self._names.pods.items())]
        pods = pods if self.has_namespaces else [p for p in pods if self.runs_in_containers(p)]
        entries = hosts.PodNames(machine=netns.GATEWAY if self.has_namespaces and self.has_host_ports else "")
        with contextlib.suppress(LookupError):  # no address is left: the turns of these pods report it
            for number, pod in enumerate(pods, 1):
                if self._is_present(pod):  # else its released address would be taken again for ever
                    self._add_names(entries, pod)
                if number % name_index.SLICE == 0:
                    yield None
        self._add_services(entries)
        yield entries

    def _add_services(self, entries: hosts.PodNames) -> None:
        """Adds Services with an address of their own, unless containers are behind them, and those that are aliases of other names."""
        if self.has_namespaces:
            for service, obj in self.addressed.items():
                behind = entries.services.get(service, ())
                if not any(entries.owners[address] in entries.contained for address in behind):
                    entries.virtual[service] = str(dig(obj, "spec.clusterIP"))
        for service, name in self._external.items():
            if found := entries.find_addresses(name, Key(service.namespace, "")):
                entries.services[service] = found

    def _add_names(self, entries: hosts.PodNames, pod: Object) -> None:
        """Adds the pod's names, and the aliases that it uses itself. Raises LookupError when no address is left."""
        address = entries.pods[key(pod)] = self._pod_address(pod)
        identity = Key(namespace(pod), uid_of(pod))
        entries.owners[address] = identity
        if self.prefix and self.runs_in_containers(pod):
            entries.contained.add(identity)
        host, subdomain = dig(pod, "spec.hostname"), dig(pod, "spec.subdomain")
        if host and host != key(pod).name:  # programs look up the address of their own hostname
            entries.add_hostname(Key(namespace(pod), host), address, is_leaving=is_deleting(pod))
        for service in self._names.services_of(pod):
            entries.services.setdefault(service, []).append(address)
            if host and service.name == subdomain:
                entries.add_hostname(Key(namespace(pod), f"{host}.{subdomain}"), address, is_leaving=is_deleting(pod))
        if added := dig(pod, "spec.hostAliases"):
            entries.aliases[identity] = added

    def _is_present(self, pod: Object) -> bool:
        current = self.view.get(kinds.POD, namespace(pod), key(pod).name)
        return current is not None and uid_of(current) == uid_of(pod)

    def _write_hosts_files(self, entries: hosts.PodNames) -> None:
        self.names = entries
        try:
            texts: dict[str, str] = {}
            for pod_namespace in {pod.namespace for pod in entries.pods}:
                texts[pod_namespace] = hosts.render_hosts_file(pod_namespace, entries)
                self._write_hosts_file(pod_namespace, texts[pod_namespace])
            for pod, aliases in entries.aliases.items():
                text = hosts.add_host_aliases(texts[pod.namespace], aliases)
                self._write_hosts_file(_own_hosts_file(pod.namespace, pod.name), text)
        except OSError:
            self.dirty = True
            raise

    def _pod_address(self, pod: Object) -> str:
        """The address at which others find the pod."""
        inside = self.prefix and self.runs_in_containers(pod)
        if inside:
            return self.container_address(uid_of(pod), host_network=bool(dig(pod, "spec.hostNetwork")))
        return self._addresses.address_of(uid_of(pod))

    def _write_hosts_file(self, name: str, text: str) -> None:
        path = os.path.join(self.data, "hosts", name)
        if self._hosts_texts.get(name) == text and os.path.exists(path):
            return
        data, flags = text.encode(), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            (self.data / "hosts").mkdir(exist_ok=True)
            fd = os.open(path, flags, 0o644)
        with open(fd, "wb") as file:
            file.write(data)
            file.truncate(len(data))
        self._hosts_texts[name] = text

    def rewrite_environment(self, pod: PodSpec, env: dict[str, str]) -> dict[str, str]:
        """The environment of a pod without an address of its own, rewritten."""
        changed = env_rewrite.rewrite_environment(
            env, f"{pod.namespace}/{pod.name}", self._pod_resolver(pod.namespace), self._assign_port
        )
        if changed != env:
            write_fact(str(self.data / "ports.json"), self._ports)
        return changed

    def rewrite_command(self, own_namespace: str, argv: list[str]) -> list[str]:
        """The command of a pod of this namespace without an address of its own, rewritten."""
        changed = command_rewrite.rewrite_command(argv, self._pod_resolver(own_namespace), self._assign_port)
        if changed != argv:
            write_fact(str(self.data / "ports.json"), self._ports)
        return changed

    def unknown_names(
        self, own_namespace: str, commands: Iterable[list[str]], variables: Iterable[Mapping[str, Any]]
    ) -> list[str]:
        """Addresses in commands and variables that a pod without an address of its own cannot resolve."""
        resolve = self._pod_resolver(own_namespace)
        left = [command_rewrite.rewrite_command(words, resolve, lambda _, port: port) for words in commands]
        values = [str(v.get("value") or "") for v in variables if v["name"] not in env_rewrite.ADDRESS_VARIABLES]
        return command_rewrite.unknown_names([*(word for words in left for word in words), *values], resolve)

    def rewrite_hostfile(self, pod: PodSpec, text: str) -> str:
        """The MPI hostfile of a pod without an address of its own, rewritten."""
        return env_rewrite.rewrite_hostfile(text, self._pod_resolver(pod.namespace))

    def _pod_resolver(self, own_namespace: str) -> Callable[[str], str]:
        def resolve(text: str) -> str:
            name, _, rest = text.partition(".")
            pod_namespace = rest.partition(".")[0] or own_namespace
            pod_or_service = self.view.get(kinds.POD, pod_namespace, name) or self.view.get(
                kinds.SERVICE, pod_namespace, name
            )
            if pod_or_service is not None:
                return f"{pod_namespace}/{name}"
            # a hostname in the domain of a Service: whichever pod has it, now or after the next failure
            domain, _, rest = rest.partition(".")
            home = rest.partition(".")[0] or own_namespace
            service = self.view.get(kinds.SERVICE, home, domain) if domain else None
            return f"{home}/{name}.{domain}" if service is not None else ""

        return resolve

    def port(self, pod: Key, port: int) -> int:
        """A pod's port, or the port of this machine that stands for it."""
        return port if self.has_namespaces else self._ports.get(f"{pod.namespace}/{pod.name}:{port}", port)

    def claim_port(self, pod: Key, port: int) -> int:
        """The port on which a program of ours listens in place of a pod's port."""
        if self.has_namespaces:
            return port
        return self._keep_port(f"{pod.namespace}/{pod.name}", port)

    def _keep_port(self, owner: str, port: int) -> int:
        """The machine's port that stands for a pod's or Service's port, which is written down when it is new."""
        is_new = f"{owner}:{port}" not in self._ports
        number = self._assign_port(owner, port)
        if is_new:
            write_fact(str(self.data / "ports.json"), self._ports)
        return number

    def _assign_port(self, pod: str, port: int) -> int:
        """The machine's port that stands for a pod's port; the same at each call."""
        entry = f"{pod}:{port}"
        if entry not in self._ports:
            self._ports[entry] = _unused_port(set(self._ports.values()))
        return self._ports[entry]

    def needs_namespace(self, pod: Object) -> bool:
        """Whether it will have a network namespace made by the pod host."""
        return self.has_namespaces and not self.runs_in_containers(pod)

    def namespace_request(self, pod: PodSpec, ip: str) -> NetworkSpec | None:
        """The request to the pod host for a pod's network; None = the pod has the machine's."""
        if not self.has_namespaces:
            return None
        return {"uid": pod.uid, "ip": ip, "hosts": str(self.hosts_file(pod)), "hostname": pod.hostname}


def _own_hosts_file(pod_namespace: str, uid: str) -> str:
    """The name of a pod's own hosts file; namespaces' files have no dot in their name."""
    return f"{pod_namespace}.{uid}"


def _unused_port(taken: set[int]) -> int:
    """A free port below the range from which the kernel takes ports for outgoing connections.

    The search begins at a random port: a port is bound later, by its pod, so two servers of one machine that both
    began at the lowest would give it to two pods.
    """
    first, end = PORT_RANGE
    begin = random.randrange(first, end)
    for port in itertools.chain(range(begin, end), range(first, begin)):
        if port not in taken:
            with socket.socket() as listener, contextlib.suppress(OSError):
                listener.bind(("", port))
                return port
    raise Unavailable(f"no free port between {PORT_RANGE[0]} and {PORT_RANGE[1]} for the pods' network")
