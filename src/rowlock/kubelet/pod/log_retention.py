"""Chooses which logs of deleted pods to keep: namespaces share the space equally, and so do pods within a namespace. Pure.

A pod that fails and is recreated for hours leaves thousands of directories; by age alone they would displace all others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class KeptLogs:
    """The logs of one deleted pod: a directory `<namespace>_<pod>_<uid>`."""

    time: float
    """When the newest was put there, in seconds since the epoch."""
    size: int
    path: str

    @property
    def pod(self) -> str:
        """Namespace and name, which the pod shares with its predecessors and successors."""
        return PurePath(self.path).name.rpartition("_")[0]

    @property
    def namespace(self) -> str:
        return self.pod.partition("_")[0]


def find_surplus(logs: Sequence[KeptLogs], most: int, most_bytes: int) -> list[KeptLogs]:
    """The logs to remove so that at most `most` pods and `most_bytes` bytes are left: of each pod's the oldest."""
    fitting = _select_kept(logs, most, lambda one: 1)
    kept = set(_select_kept(fitting, most_bytes, lambda one: one.size))
    return [one for one in logs if one not in kept]


def _select_kept(logs: Sequence[KeptLogs], room: float, weigh: Callable[[KeptLogs], int]) -> Sequence[KeptLogs]:
    """The logs that fit `room`, shared equally; what a share leaves unused goes to the newest of the rest."""
    if sum(map(weigh, logs)) <= room:
        return logs
    newest_first = sorted(logs, key=lambda one: (-one.time, one.path))
    kept: set[KeptLogs] = set()
    for namespace, quota in _share(newest_first, room, weigh, lambda one: one.namespace):
        for pod, part in _share(namespace, quota, weigh, lambda one: one.pod):
            kept.update(_take(pod, part, weigh))
    rest = [one for one in newest_first if one not in kept]
    return [*kept, *_take(rest, room - sum(map(weigh, kept)), weigh)]


def _take(logs: Iterable[KeptLogs], room: float, weigh: Callable[[KeptLogs], int]) -> list[KeptLogs]:
    """In order, each that fits the room left by those before it."""
    taken = []
    for one in logs:
        if weigh(one) <= room:
            room -= weigh(one)
            taken.append(one)
    return taken


def _share(
    logs: Iterable[KeptLogs], room: float, weigh: Callable[[KeptLogs], int], owner_of: Callable[[KeptLogs], str]
) -> list[tuple[list[KeptLogs], float]]:
    """The logs of each owner and its share of `room`: all it needs, or an equal part (max-min fairness)."""
    owners: dict[str, list[KeptLogs]] = defaultdict(list)
    for one in logs:
        owners[owner_of(one)].append(one)
    modest_first = sorted(owners.values(), key=lambda own: sum(map(weigh, own)))
    shares = []
    for number, own in enumerate(modest_first):
        part = min(sum(map(weigh, own)), room / (len(modest_first) - number))
        room -= part
        shares.append((own, part))
    return shares
