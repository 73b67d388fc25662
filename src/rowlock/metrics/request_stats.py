"""Number and durations of requests, recorded where they are answered and exported by `server_families.py`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from rowlock.apiserver.http.requests import Target

BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)  # fmt: skip
"""Upper bounds of `apiserver_request_duration_seconds`, in seconds: kube-apiserver's."""
LONG_RUNNING_VERBS = frozenset({"WATCH", "CONNECT"})
"""Clients decide how long these last, so they are counted but have no duration metric."""
_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class Durations:
    """A histogram: the number of requests in each of `BUCKETS` (not cumulative), and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, cumulative count) for each bucket, as in Prometheus' text format."""
        pairs, so_far = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            so_far += count
            pairs.append((bound, float(so_far)))
        return pairs


ResourceLabels = tuple[str, str, str, str, str, str]
"""verb, group, version, resource, subresource, scope: the labels of kube-apiserver's request metrics."""


class RequestStats:
    """The counters of one server. Its methods run for every request, so they must take about a microsecond."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[ResourceLabels, int]] = Counter()
        self.durations: dict[ResourceLabels, Durations] = {}
        self.long_running: Counter[ResourceLabels] = Counter()
        self.rest_counts: Counter[tuple[str, str, int]] = Counter()
        """REST API: number of requests by (method, route such as `/api/v1/workloads/{id}`, status code)."""
        self.rest_durations: dict[tuple[str, str], Durations] = {}

    def count_request(self, verb: str, target: Target | None, code: int, seconds: float) -> None:
        """Count a request of the Kubernetes API that was answered. `verb` is Kubernetes' verb, or the HTTP method."""
        labels = resource_labels(verb, target)
        self.counts[labels, code] += 1
        if labels[0] not in LONG_RUNNING_VERBS:
            durations = self.durations.get(labels)
            if durations is None:
                durations = self.durations[labels] = Durations()
            durations.add(seconds)

    def count_long_running(self, verb: str, target: Target, change: int) -> None:
        """Count a watch, followed log or session in a pod that begins (`change` +1) or ends (-1)."""
        self.long_running[resource_labels(verb, target)] += change

    def count_rest_request(self, method: str, route: str, code: int, seconds: float) -> None:
        """Count a request of the REST API that was answered."""
        self.rest_counts[method, route, code] += 1
        durations = self.rest_durations.get((method, route))
        if durations is None:
            durations = self.rest_durations[method, route] = Durations()
        durations.add(seconds)


def resource_labels(verb: str, target: Target | None) -> ResourceLabels:
    """kube-apiserver's labels for a request. No value comes from the client as it is: a client could create unlimited series."""
    if target is None:
        return (verb if verb in _KNOWN_METHODS else "OTHER", "", "", "", "", "")
    kind = target.kind
    scope = "resource" if target.name else "namespace" if target.namespace else "cluster"
    return verb.upper(), kind.group, kind.version, kind.plural, target.subresource, scope
