"""Whose pods a scheduler places, and under which name it speaks: what differs between a cluster of our own and a real one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rowlock.objects import Object, dig

CLUSTER_SCHEDULER_NAME = "rowlock-scheduler"
"""The schedulerName by which pods of a real cluster ask for us; others are placed by somebody else."""


@dataclass(frozen=True, slots=True)
class SchedulerIdentity:
    """`names` are the schedulerNames ("" = none given) whose pods we place, `event_source` signs our Events."""

    names: frozenset[str]
    event_source: str
    places_every_gang: bool = False
    """Pods of a PodGroup are ours whatever schedulerName they have: nobody else would place them."""
    assigns_devices: bool = False
    """A bind says which cards a pod gets. A real kubelet asks its device plugin, and does not ask us."""
    plans_volumes: bool = False
    """Pods go where their volumes are. On one machine they are everywhere."""

    def is_foreign(self, pod: Object) -> bool:
        """True for pods of another scheduler: they hold resources and are never touched."""
        return str(dig(pod, "spec.schedulerName") or "") not in self.names

    def is_foreign_gang(self, pods: Iterable[Object]) -> bool:
        """True where another scheduler places any of the gang's pods: it cannot start together then."""
        return not self.places_every_gang and any(self.is_foreign(pod) for pod in pods)


EMBEDDED = SchedulerIdentity(
    frozenset({"", "default-scheduler", "kai-scheduler", "runai-scheduler", "rowlock", CLUSTER_SCHEDULER_NAME}),
    "default-scheduler",
    places_every_gang=True,
    assigns_devices=True,
)
"""The embedded cluster has one scheduler: these names mean it, and jobs written for others run as well."""
REAL_CLUSTER = SchedulerIdentity(frozenset({CLUSTER_SCHEDULER_NAME}), CLUSTER_SCHEDULER_NAME, plans_volumes=True)
"""On a real cluster everything but our own name is somebody else's."""
