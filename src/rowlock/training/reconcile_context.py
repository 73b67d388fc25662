"""The state of one reconcile of one job: what was observed, and what is decided so far.

The lifecycle's steps read the observations and collect decisions here; `finish` turns them into writes. Events about observations
(`record_event`: an exit code, a failing pod) come first, because they cannot be refused. Then come the actions, each followed by its event,
so that the events stay true if one is refused. The status comes last, as in the operator: it is not written if pods are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rowlock.api import Create, Decision, Delete, Patch, Record, Update, Write
from rowlock.kinds import POD, SERVICE, Kind
from rowlock.objects import Object, end_time, is_deleting, name, namespace, timestamp
from rowlock.training.conditions import Condition, Conditions, equal_except_times, is_condition_true, set_condition
from rowlock.training.model import DEFAULT, Job, Parity, Replica, group_by_replica_type

Level = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Observed:
    """What the operator sees of a job: its object, the pods it owns, the services with its labels, and the
    framework's other objects by kind and name."""

    job: Object
    pods: Sequence[Object] = ()
    services: Sequence[Object] = ()
    other_objects: Mapping[Kind, Mapping[str, Object]] = field(default_factory=dict)
    as_created: bool = True
    """The job has not changed since it was created, or since the operator started. Only then the operator sets the condition Created, on
    its first copy of the object."""
    reconcile_count: int = 0
    """Number of earlier reconciles of the job, as far as the operator remembers."""
    finished_for: float = math.inf
    """Seconds since the job was first seen finished, as far as the operator remembers."""


class ReconcileContext:
    """The decisions of one reconcile of one job. Created for each reconcile."""

    def __init__(self, job: Job, observed: Observed, now: float, parity: Parity = DEFAULT) -> None:
        status = job.object.get("status") or {}
        self.job, self.observed, self.now, self.parity = job, observed, now, parity
        self.old_status: Object = status
        self.conditions: Conditions = tuple(status.get("conditions") or ())
        self.counts: dict[str, dict[str, int]] = {
            type_: {k: int(v) for k, v in (counts or {}).items() if k in ("active", "succeeded", "failed")}
            for type_, counts in (status.get("replicaStatuses") or {}).items()
        }
        self.start_time: str | None = status.get("startTime")
        self.completion_time: str | None = status.get("completionTime")
        self.pods = group_by_replica_type(observed.pods)
        self.services = {**observed.other_objects.get(SERVICE, {}), **{name(s): s for s in observed.services}}
        self.observed_events: list[Record] = []
        self.conclusion_events: list[Record] = []
        self.writes: list[Write] = []
        self.is_concluding = False
        """Once True, further events are written after the actions, so that nothing is concluded if pods are refused."""

    # ---------------------------------------------------------------- conditions and counts

    def has_condition(self, type_: str) -> bool:
        return is_condition_true(self.conditions, type_)

    def set_condition(self, type_: str, suffix: str, message: str, status: str = "True") -> None:
        """Set a condition; its reason is the kind's name and `suffix`."""
        reason = self.job.framework.prefixed_reason(suffix)
        self.conditions = set_condition(self.conditions, Condition(type_, reason, message, status), self.now)

    def reset_counts(self, replica: Replica) -> dict[str, int]:
        """Reset the counts of a replica type."""
        self.counts[replica.type] = {"active": 0, "succeeded": 0, "failed": 0}
        return self.counts[replica.type]

    def replica_count(self, type_: str, state: str) -> int:
        return self.counts.get(type_, {}).get(state, 0)

    def set_start_time(self, *, restart: bool = False) -> None:
        if self.start_time is None or restart:
            self.start_time = timestamp(self.now)

    def set_completion_time(self) -> None:
        """Set the completionTime to now, as the operator does; for a job that ended while the server was down, to its pods' end."""
        if self.completion_time is None:
            self.completion_time = timestamp(end_time(self.job.object, self.observed.pods, self.now, is_told=False))

    # ---------------------------------------------------------------- events and writes

    def job_event(self, level: Level, reason: str, message: str) -> Record:
        return Record(self.job.object, level, reason, message, self.job.framework.operator)

    def record_event(self, level: Level, reason: str, message: str) -> None:
        """Add an event about an observation or conclusion."""
        (self.conclusion_events if self.is_concluding else self.observed_events).append(
            self.job_event(level, reason, message)
        )

    def record_kind_event(self, level: Level, suffix: str, message: str) -> None:
        """`record_event` with the kind's name before the reason."""
        self.record_event(level, self.job.framework.prefixed_reason(suffix), message)

    def create(self, kind: Kind, obj: Object, created_event: Record | None = None, *failed_events: Record) -> None:
        """Create an object, with events for success and failure."""
        self.writes.append(Create(kind, obj, failed_events))
        if created_event:
            self.writes.append(created_event)

    def create_owned(self, kind: Kind, obj: Object) -> None:
        """Create a pod or service, with the operator's usual events."""
        created_event = self.job_event(
            "Normal", f"SuccessfulCreate{kind.name}", f"Created {kind.singular}: {name(obj)}"
        )
        self.create(
            kind, obj, created_event, self.job_event("Warning", f"FailedCreate{kind.name}", "Error creating: {error}")
        )

    def withdraw_new_pods(self) -> None:
        """Drop all creates of pods and their events."""
        made = {i for i, write in enumerate(self.writes) if isinstance(write, Create) and write.kind is POD}
        self.writes = [
            write
            for i, write in enumerate(self.writes)
            if i not in made
            and not (i - 1 in made and isinstance(write, Record))  # the event of success follows its create
        ]

    def patch(self, kind: Kind, obj: Object, patch: Object) -> None:
        self.writes.append(Patch(kind, namespace(obj), name(obj), patch))

    def update(self, kind: Kind, obj: Object) -> None:
        self.writes.append(Update(kind, obj))

    def delete(self, kind: Kind, obj: Object) -> None:
        """Delete a pod or service, unless it is already being deleted."""
        if is_deleting(obj):
            return
        failed_event = self.job_event("Warning", f"FailedDelete{kind.name}", "Error deleting: {error}")
        self.writes.append(Delete(kind, namespace(obj), name(obj), failure_records=(failed_event,)))
        self.writes.append(
            self.job_event("Normal", f"SuccessfulDelete{kind.name}", f"Deleted {kind.singular}: {name(obj)}")
        )

    def delete_with_services(self, pods: Sequence[Object]) -> None:
        """Delete pods, then their services: consecutive writes of one kind are one commit. (Kubeflow's operator deletes a pod, its service,
        the next pod and so on, one after the other.)"""
        for pod in pods:
            self.delete(POD, pod)
        for pod in pods:
            if service := self.services.get(name(pod)):
                self.delete(SERVICE, service)

    def delete_job(self) -> None:
        """Delete the job itself; its status must not be written afterwards."""
        job = self.job
        self.writes.append(
            Delete(
                job.framework.kind,
                job.namespace,
                job.name,
                failure_records=(self.job_event("Warning", "FailedDeleteJob", "Error deleting: {error}"),),
            )
        )
        self.writes.append(self.job_event("Normal", job.framework.ttl_reason, f"Deleted job: {job.name}"))

    # ---------------------------------------------------------------- the result

    def status(self) -> Object:
        """The decided status. Conditions keep their times if nothing else about them changed."""
        status = dict(self.old_status)
        old_conditions = tuple(self.old_status.get("conditions") or ())
        status["conditions"] = list(
            old_conditions if equal_except_times(old_conditions, self.conditions) else self.conditions
        )
        status["replicaStatuses"] = {type_: self._replica_status(type_) for type_ in self.counts}
        status |= {"startTime": self.start_time, "completionTime": self.completion_time}
        return {k: v for k, v in status.items() if v not in (None, [], {}) or k in self.old_status}

    def _replica_status(self, type_: str) -> Object:
        counts: Object = {k: v for k, v in self.counts[type_].items() if v}
        if self.job.framework.has_scale_selector and type_ in self.job.replicas:
            labels = {**self.job.labels, "training.kubeflow.org/replica-type": type_.lower()}
            counts["selector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        elif old_selector := ((self.old_status.get("replicaStatuses") or {}).get(type_) or {}).get("selector"):
            counts["selector"] = old_selector
        return counts

    def finish(self, requeue_after: float | None = None) -> Decision:
        """The decision, with a status update if the status changed."""
        writes: list[Write] = [*self.observed_events, *self.writes, *self.conclusion_events]
        status = self.status()
        if status != self.old_status:
            writes.append(Update(self.job.framework.kind, {**self.job.object, "status": status}, "status"))
        return Decision(tuple(writes), requeue_after)

    def finish_without_status(self, *, stuck: bool = False) -> Decision:
        """The decision without a status update; `stuck`: requeue the job."""
        return Decision((*self.observed_events, *self.writes, *self.conclusion_events), requeue=stuck)
