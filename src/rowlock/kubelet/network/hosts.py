"""Names and addresses of the pod network: which pod has which IP, and the hosts files with them. Pure.

Every pod gets an address when it is first seen, bound or not, so that all ranks of a gang are in the file before the
first one starts. A pod's name resolves as Kubernetes resolves a headless service of that name: `p`, `p.ns`,
`p.ns.svc`, `p.ns.svc.cluster.local`. Services with selectors resolve to all their pods. A pod with `hostname` is found under that,
and with `subdomain` under both (`h.s`) where a service of the subdomain's name selects it. There is one file per namespace,
because short names belong to one, and one more for every pod that adds names of its own (`spec.hostAliases`).
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.objects import Key

DOMAIN = "cluster.local"
HOST_NAME = "host.rowlock.internal"
"""The name by which pods reach the machine that they run on."""
PREFIX = "10.77"
_FIRST, _LAST = ipaddress.IPv4Address("10.77.1.1"), ipaddress.IPv4Address("10.77.254.254")
HOSTS_HEADER = (
    "# written by rowlock: pods of this cluster\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
)


@dataclass(slots=True)
class PodAddresses:
    """The address of each pod; assigned in order, and reused only after the whole range was assigned once."""

    _by_uid: dict[str, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _next: int = int(_FIRST)

    def address_of(self, uid: str) -> str:
        """The pod's address, assigned at the first call. Raises LookupError when all are taken."""
        if uid not in self._by_uid:
            self.restore(uid, self._next_free())
        return self._by_uid[uid]

    def restore(self, uid: str, ip: str) -> None:
        """Records the address that a pod had before this server started."""
        self._by_uid[uid] = ip
        self._taken.add(ip)

    def release(self, uid: str) -> None:
        ip = self._by_uid.pop(uid, None)
        self._taken.discard(ip or "")

    def _next_free(self) -> str:
        for _ in range(int(_LAST) - int(_FIRST)):
            candidate = str(ipaddress.IPv4Address(self._next))
            self._next = self._next + 1 if self._next < int(_LAST) else int(_FIRST)
            if candidate not in self._taken and not candidate.endswith((".0", ".255")):
                return candidate
        raise LookupError("no free pod address in 10.77.0.0/16")


@dataclass(frozen=True, slots=True)
class PodNames:
    """The names in the pod network at one moment."""

    pods: dict[Key, str] = field(default_factory=dict)
    """A pod's namespace and name → its address."""
    hostnames: dict[Key, str] = field(default_factory=dict)
    """A pod's namespace and `hostname`, or `hostname.subdomain` → its address."""
    services: dict[Key, list[str]] = field(default_factory=dict)
    """A service's namespace and name → the addresses of its pods."""
    aliases: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)
    """A pod's namespace and *uid* → the names that it adds for itself."""
    owners: dict[str, Key] = field(default_factory=dict)
    """An address → the namespace and *uid* of its pod."""
    virtual: dict[Key, str] = field(default_factory=dict)
    """A service's namespace and name → its own address, from which connections are led to its pods."""
    contained: set[Key] = field(default_factory=set)
    """The entries of `owners` that run in containers of an engine."""
    machine: str = ""
    """The address at which pods reach ports of the machine, if any."""

    def add_hostname(self, name: Key, address: str, *, is_leaving: bool) -> None:
        """Adds a hostname. Of two pods with one hostname the one that stays wins: a Job replaces a pod before it is gone."""
        if not is_leaving or name not in self.hostnames:
            self.hostnames[name] = address

    def find_addresses(self, host: str, client: Key) -> list[str]:
        """The addresses of a name in the hosts file of a pod (`client`: namespace and uid); [] = it is not in it."""
        host = host.lower().rstrip(".")
        if own := [a["ip"] for a in self.aliases.get(client, ()) if host in a.get("hostnames", ())]:
            return own
        if self.machine and host == HOST_NAME:
            return [self.machine]
        for meant in _meanings(host, client.namespace):
            if address := self.virtual.get(meant) or self.pods.get(meant) or self.hostnames.get(meant):
                return [address]
            if meant in self.services:
                return list(self.services[meant])
        return []


def _meanings(host: str, home: str) -> Iterator[Key]:
    """Namespace and name of the pods or services that `host` may mean in namespace `home`: the inverse of `dns_names`."""
    name = host.removesuffix(f".svc.{DOMAIN}").removesuffix(".svc")
    if name == host:  # a short name; a name with a dot may end with a namespace, or be `hostname.subdomain`
        yield Key(home, name)
    rest, dot, last = name.rpartition(".")
    if dot:
        yield Key(last, rest)


def dns_names(name: str, namespace: str, home: str) -> list[str]:
    """All spellings of the name of a pod or service, as seen from namespace `home`."""
    short = [name] if namespace == home else []
    return [*short, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"]


def render_hosts_file(home: str, names: PodNames) -> str:
    """The hosts file of namespace `home`.

    A server that listens for IPv6 and IPv4 sees its clients at `::ffff:10.77.…`, and torch looks up their names: those addresses
    have a line of their own, under a name that is not used for lookups."""
    lines = [f"{names.machine}\t{HOST_NAME}\n"] if names.machine else []
    pods, hostnames = sorted(names.pods.items()), sorted(names.hostnames.items())
    lines += [_hosts_line(ip, service, home) for service, ip in sorted(names.virtual.items())]
    lines += [_hosts_line(ip, pod, home) for pod, ip in pods if pod not in names.virtual]
    lines += [f"::ffff:{ip}\t{pod.name}.{pod.namespace}.pod.{DOMAIN}\n" for pod, ip in pods]
    lines += [_hosts_line(ip, hostname, home) for hostname, ip in hostnames]
    for service, ips in sorted(names.services.items()):
        if service not in names.pods and service not in names.virtual:
            lines += [_hosts_line(ip, service, home) for ip in ips]
    return HOSTS_HEADER + "".join(lines)


def _hosts_line(ip: str, named: Key, home: str) -> str:
    return f"{ip}\t{' '.join(dns_names(named.name, named.namespace, home))}\n"


def add_host_aliases(text: str, aliases: Sequence[Mapping[str, Any]]) -> str:
    """A namespace's hosts file with a pod's `spec.hostAliases`, whose addresses and names admission has checked.

    An alias hides a pod or service of the same name: on a cluster those are in DNS, which is asked after the file."""
    lines = ["\t".join([alias["ip"], *alias.get("hostnames", ())]) + "\n" for alias in aliases]
    hidden = {name for alias in aliases for name in alias.get("hostnames", ())}
    for line in text.removeprefix(HOSTS_HEADER).splitlines():
        ip, *names = line.split()
        if left := [name for name in names if name not in hidden]:
            lines.append(f"{ip}\t{' '.join(left)}\n")
    return HOSTS_HEADER + "".join(lines)
