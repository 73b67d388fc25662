"""Names and addresses of the pod network: who has which IP, and the hosts file that says so. Pure.

Every pod gets an address when it is first seen, bound or not, so that all ranks of a gang are in the file before the
first one starts. A pod's name resolves as Kubernetes resolves a headless service of that name: `p`, `p.ns`,
`p.ns.svc`, `p.ns.svc.cluster.local`; services with selectors resolve to all their pods. There is one file a namespace,
because short names belong to one, and one more for every pod that adds names of its own (`spec.hostAliases`).
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock.objects import Key

DOMAIN = "cluster.local"
HOST_NAME = "host.rowlock.internal"
"""What pods call the machine they run on."""
PREFIX = "10.77"
_FIRST, _LAST = ipaddress.IPv4Address("10.77.1.1"), ipaddress.IPv4Address("10.77.254.254")
HOSTS_HEADER = (
    "# written by rowlock: pods of this cluster\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
)


@dataclass(slots=True)
class PodAddresses:
    """Who has which address; given in order, reused only when the range has been walked through."""

    _by_uid: dict[str, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _next: int = int(_FIRST)

    def address_of(self, uid: str) -> str:
        """The pod's address, given at the first call. Raises LookupError when all are taken."""
        if uid not in self._by_uid:
            self.restore(uid, self._next_free())
        return self._by_uid[uid]

    def restore(self, uid: str, ip: str) -> None:
        """What a pod had before this server started."""
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


def dns_names(name: str, namespace: str, home: str) -> list[str]:
    """All spellings of a pod or service for somebody in namespace `home`."""
    short = [name] if namespace == home else []
    return [*short, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}"]


def render_hosts_file(
    home: str, pods: Mapping[Key, str], services: Mapping[Key, Iterable[str]], *, machine: str = ""
) -> str:
    """The hosts file of namespace `home`. `machine`: the address at which pods reach ports of the machine, if any.

    A server that listens for IPv6 and IPv4 sees its clients at `::ffff:10.77.…`, and torch asks for their names: those have
    a line of their own, under a name that nobody asks the address of."""
    lines = [f"{machine}\t{HOST_NAME}\n"] if machine else []
    lines += [f"{ip}\t{' '.join(dns_names(pod.name, pod.namespace, home))}\n" for pod, ip in sorted(pods.items())]
    lines += [f"::ffff:{ip}\t{pod.name}.{pod.namespace}.pod.{DOMAIN}\n" for pod, ip in sorted(pods.items())]
    for service, ips in sorted(services.items()):
        if service not in pods:
            lines += [f"{ip}\t{' '.join(dns_names(service.name, service.namespace, home))}\n" for ip in ips]
    return HOSTS_HEADER + "".join(lines)


def add_host_aliases(text: str, aliases: Sequence[Mapping[str, Any]]) -> str:
    """A namespace's hosts file with a pod's `spec.hostAliases`. Admission has checked their addresses and names.

    An alias hides a pod or service of its name: elsewhere those are in the cluster's DNS, which is asked after the file."""
    lines = ["\t".join([alias["ip"], *alias.get("hostnames", ())]) + "\n" for alias in aliases]
    hidden = {name for alias in aliases for name in alias.get("hostnames", ())}
    for line in text.removeprefix(HOSTS_HEADER).splitlines():
        ip, *names = line.split()
        if left := [name for name in names if name not in hidden]:
            lines.append(f"{ip}\t{' '.join(left)}\n")
    return HOSTS_HEADER + "".join(lines)
