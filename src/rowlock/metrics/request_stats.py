"""How many requests there were and how long they took; counted where they are answered, told in `server_families.py`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from rowlock.apiserver.http.requests import Target

BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)  # fmt: skip
"""Upper bounds of `apiserver_request_duration_seconds`, in seconds: kube-apiserver's."""
LONG_RUNNING_VERBS = frozenset({"WATCH", "CONNECT"})
"""These last as long as their clients like: they are counted, but not measured."""
_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class Durations:
    """A histogram: how many were no slower than each of `BUCKETS` and slower than the one before, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many are no slower), as Prometheus' text has it."""
        pairs, so_far = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            so_far += count
            pairs.append((bound, float(so_far)))
        return pairs


ResourceLabels = tuple[str, str, str, str, str, str]
"""verb, group, version, resource, subresource, scope: the labels of kube-apiserver's request metrics."""


class RequestStats:
    """Of one server. Its methods are called for every request: they are a microsecond each."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[ResourceLabels, int]] = Counter()
        self.durations: dict[ResourceLabels, Durations] = {}
        self.long_running: Counter[ResourceLabels] = Counter()
        self.rest_counts: Counter[tuple[str, str, int]] = Counter()
        """REST API: method, route (as `/api/v1/workloads/{id}`), code."""
        self.rest_durations: dict[tuple[str, str], Durations] = {}

    def count_request(self, verb: str, target: Target | None, code: int, seconds: float) -> None:
        """A request of the Kubernetes API is answered. `verb` is Kubernetes' word for it, or the method."""
        labels = resource_labels(verb, target)
        self.counts[labels, code] += 1
        if labels[0] not in LONG_RUNNING_VERBS:
            durations = self.durations.get(labels)
            if durations is None:
                durations = self.durations[labels] = Durations()
            durations.add(seconds)

    def count_long_running(self, verb: str, target: Target, change: int) -> None:
        """A watch, a followed log or a session in a pod begins (+1) or is over (-1)."""
        self.long_running[resource_labels(verb, target)] += change

    def count_rest_request(self, method: str, route: str, code: int, seconds: float) -> None:
        """A request of the REST API is answered."""
        self.rest_counts[method, route, code] += 1
        durations = self.rest_durations.get((method, route))
        if durations is None:
            durations = self.rest_durations[method, route] = Durations()
        durations.add(seconds)


def resource_labels(verb: str, target: Target | None) -> ResourceLabels:
    """As kube-apiserver labels a request; no client chooses a value, because a client could make series without end."""
    if target is None:
        return (verb if verb in _KNOWN_METHODS else "OTHER", "", "", "", "", "")
    kind = target.kind
    scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
    return verb.upper(), kind.group, kind.version, kind.plural, target.subresource, scope
