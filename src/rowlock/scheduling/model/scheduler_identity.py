"""Which pods our scheduler places, and under which name: the differences between the embedded cluster and a real one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.objects import Object, dig

CLUSTER_SCHEDULER_NAME = "rowlock-scheduler"
"""The schedulerName of the pods of a real cluster that our scheduler places."""


@dataclass(frozen=True, slots=True)
class SchedulerIdentity:
    """`names`: the schedulerNames ("" = none given) of the pods that we place; `event_source`: the source of our Events."""

    names: frozenset[str]
    event_source: str
    places_every_gang: bool = False
    """We place pods of a PodGroup whatever their schedulerName, since there is no other scheduler."""
    assigns_devices: bool = False
    """A bind names the pod's GPUs. A real kubelet asks its device plugin instead."""
    plans_volumes: bool = False
    """Pods are placed on nodes that can mount their volumes. On one machine all nodes can."""

    def is_foreign(self, pod: Object) -> bool:
        """True for pods of another scheduler: they hold resources and are never touched."""
        return str(dig(pod, "spec.schedulerName") or "") not in self.names

    def is_foreign_gang(self, pods: Iterable[Object]) -> bool:
        """True if another scheduler places any of the gang's pods: it cannot start together then."""
        return not self.places_every_gang and any(self.is_foreign(pod) for pod in pods)


EMBEDDED = SchedulerIdentity(
    frozenset({"", "default-scheduler", "kai-scheduler", "runai-scheduler", "rowlock", CLUSTER_SCHEDULER_NAME}),
    "default-scheduler",
    places_every_gang=True,
    assigns_devices=True,
)
"""The embedded cluster has one scheduler. It also accepts the names of others, so that jobs written for them run."""
REAL_CLUSTER = SchedulerIdentity(frozenset({CLUSTER_SCHEDULER_NAME}), CLUSTER_SCHEDULER_NAME, plans_volumes=True)
"""On a real cluster pods with any other schedulerName are left alone."""
