"""Whether the running ranks of a job on a real cluster work apart: by the counters and connections of their pods, and by their logs.

Nobody watches there, so what the kernel has counted in each pod's network since its start takes the place of repeated looks: ranks that
have met, if only for a moment, have connected, and one of their pods has accepted. Where exec is forbidden, or a pod has no network of its
own, only what the logs say themselves is evidence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from rowlock import objects
from rowlock.curves.endings import last_place, read_text
from rowlock.diagnosis import remarks
from rowlock.diagnosis.remarks import Remark, says_only_rank, says_world_of_one
from rowlock.kube_evidence.rank_probe import FRAMEWORKS
from rowlock.objects import Object

MIN_ATTEMPTS = 4
"""Refused attempts to connect of a pod whose ranks seek others, and do not train alone."""
LONG_S = 120.0
"""Seconds after which ranks that have loaded a framework are reported though their logs have no figures."""


class NetworkCounts(msgspec.Struct):
    """The answer of `pod_network` in rank_probe.py. Not trusted."""

    opened: int = 0
    accepted: int = 0
    failed: int = 0
    inside: int = 0
    peers: list[str] = []
    packages: list[str] = []
    variables: dict[str, str] = {}

    @property
    def has_accepted_others(self) -> bool:
        """Whether it has accepted a connection that it does not hold to itself now: it may have been another pod's."""
        return self.accepted > self.inside


@dataclass(frozen=True, slots=True)
class PodSight:
    """What is known of one pod. `network`: None if it cannot be read, or is not the pod's own; `log`: the end of its log."""

    pod: Object
    names: tuple[str, ...]
    """The names of its ranks."""
    log: str = ""
    ran: float = 0.0
    """Seconds since its container started."""
    network: NetworkCounts | None = None
    imported: frozenset[str] = field(default_factory=frozenset)
    """Packages whose code is in the ranks' stacks."""


def remark_on_separate(job: Object, sights: Sequence[PodSight]) -> Remark | None:
    """The remark that the ranks work apart, from what is seen of all pods of a job; None if they do not, or it cannot be known. Parses
    logs: not for the event loop."""
    names = [name for sight in sights for name in sight.names]
    networks = [sight.network for sight in sights if sight.network is not None]
    own = {address for sight in sights for address in _addresses(sight.pod)}
    if len(sights) < 2 or any(own.intersection(map(_readable, network.peers)) for network in networks):
        return None
    if len(networks) < len(sights) or any(network.has_accepted_others for network in networks):
        return remarks.only_ranks(names) if all(says_only_rank(sight.log) for sight in sights) else None
    if any(network.failed >= MIN_ATTEMPTS for network in networks):
        return None
    train, ran = sum(map(_trains, sights)) > 1, min(sight.ran for sight in sights)
    has_framework = all(not set(FRAMEWORKS).isdisjoint(network.packages) for network in networks)
    if not train and not (has_framework and ran >= LONG_S):
        return None
    packages = set(networks[0].packages) | sights[0].imported
    hint = remarks.missing_for_group(packages, networks[0].variables, len(sights), str(job.get("kind", "")))
    return remarks.uncounted_ranks(names, ran, hint, train=train)


def _trains(sight: PodSight) -> bool:
    return says_world_of_one(sight.log) or last_place(read_text(sight.log)) is not None


def _addresses(pod: Object) -> set[str]:
    many = objects.dig(pod, "status.podIPs", None) or ()
    return {str(one.get("ip")) for one in many if isinstance(one, dict)} | {str(objects.dig(pod, "status.podIP", ""))}


def _readable(address: str) -> str:
    """An address of /proc/net/tcp (hexadecimal, words in the byte order of x86 and ARM) as it is usually written; "" if it is none."""
    with suppress(ValueError):
        words = bytes.fromhex(address)
        return str(ipaddress.ip_address(b"".join(words[n : n + 4][::-1] for n in range(0, len(words), 4))))
    return ""
