"""`JobController`: reconciles one kind of job, after changes of the job or of objects that it owns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rowlock.api import NOTHING, Change, Decision, Record, View
from rowlock.kinds import JOBS, POD, SERVICE, Kind
from rowlock.objects import (
    Key,
    Object,
    condition,
    controller_of,
    is_condition_true,
    is_controlled_by,
    is_deleting,
    key,
    labels,
    namespace,
    revision,
    uid,
)
from rowlock.objects import name as name_of
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.job import reconcile, should_delete_pod
from rowlock.training.job_changes import is_only_bound, owner_keys, pace_decision
from rowlock.training.model import DEFAULT, JOB_LABEL, OPERATOR_LABEL, Parity
from rowlock.training.reconcile_context import Observed

PREEMPTION_REASON = "PreemptionByScheduler"
"""The reason of the condition DisruptionTarget that the scheduler sets on a pod before it evicts it."""


def mask_preempted_pod(pod: Object) -> Object:
    """The pod as the operator should judge it. A pod that the scheduler evicted counts as Pending, however its program ended, and is
    replaced once it is gone. So an evicted job resumes whatever its restartPolicy; on a cluster with KAI, `Never` would leave it Failed. A
    pod with the condition that is not being deleted was not evicted after all, and is returned unchanged."""
    disruption = condition(pod, "DisruptionTarget") if is_deleting(pod) else None
    if disruption is None or disruption.get("status") != "True" or disruption.get("reason") != PREEMPTION_REASON:
        return pod
    return {**pod, "status": {"phase": "Pending"}}


class JobController:
    """The operator of one job kind.

    It remembers each job's events of the last reconcile, so that an event of a continuing cause is written once. Those events precede all
    other writes, so they are never lost; after a restart they are only repeated. It also remembers when it first saw a job finished, for
    `Parity.linger`, which needs fractions of a second."""

    def __init__(self, kind: Kind, parity: Parity = DEFAULT) -> None:
        self.framework = FRAMEWORKS[kind]
        self.parity = parity
        self.name = self.framework.operator
        self.kinds: tuple[Kind, ...] = (kind, POD, SERVICE, *self.framework.dependents)
        self._last_events: dict[str, frozenset[tuple[str, str]]] = {}
        self._finished_at: dict[str, float] = {}
        self._first_revisions: dict[str, int] = {}
        """The revision at which each job was first seen."""
        self._reconcile_counts: dict[str, int] = {}

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The job itself, or the job that owns the changed object."""
        job_kind = self.framework.kind
        if change.kind is job_kind:
            self._track_job(change)
            return (key(change.object),)
        found = tuple(dict.fromkeys(owner_keys(job_kind, change)))
        return () if found and change.kind is POD and is_only_bound(change) else found

    def _track_job(self, change: Change) -> None:
        job_uid = uid(change.object)
        if change.type == "Added":
            self._first_revisions[job_uid] = revision(change.object)
        elif change.type == "Deleted":
            for memory in (self._last_events, self._finished_at, self._first_revisions, self._reconcile_counts):
                memory.pop(job_uid, None)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one job."""
        job = view.get(self.framework.kind, key.namespace, key.name)
        if job is None:
            return NOTHING
        observed = self.observe_job(view, job)
        self._reconcile_counts[uid(job)] = observed.reconcile_count + 1
        if self.parity.linger and is_condition_true(job, "Succeeded"):
            observed = replace(observed, finished_for=now - self._finished_at.setdefault(uid(job), now))
        decision = pace_decision(reconcile(self.framework, observed, now, self.parity), len(observed.pods))
        return self._drop_repeated_events(uid(job), decision) if self.parity.events_once else decision

    def observe_job(self, view: View, job: Object) -> Observed:
        """What the operator reads of a job: its own pods, all services with its labels, and its other objects. After the job's end
        services are read only if pods, with which they are deleted, are left to delete."""
        job_namespace, job_name, job_uid = namespace(job), name_of(job), uid(job)
        parsed = parse_job(self.framework, job)
        pods = [
            mask_preempted_pod(p)
            for p in view.by_label(POD, job_namespace, JOB_LABEL, job_name)
            if labels(p).get(OPERATOR_LABEL) == self.name and is_controlled_by(p, job_uid)
        ]
        other_objects = {k: {name_of(o): o for o in view.by_owner(k, job_uid)} for k in self.framework.dependents}
        for kind, name in self.framework.named_objects(parsed):
            if named_object := view.get(kind, job_namespace, name):
                other_objects.setdefault(kind, {})[name] = named_object
        services: list[Object] = []
        is_over = is_condition_true(job, "Succeeded") or is_condition_true(job, "Failed")
        if not is_over or any(should_delete_pod(parsed.policy.clean_pod_policy, pod) for pod in pods):
            services = [
                s
                for s in view.by_label(SERVICE, job_namespace, JOB_LABEL, job_name)
                if labels(s).get(OPERATOR_LABEL) == self.name
                and (not self.framework.adopts_services or (controller_of(s) or {}).get("uid", job_uid) == job_uid)
            ]
            for pod in pods:  # cleanup deletes the Service with the pod's name, whatever its owner
                if named_object := view.get(SERVICE, job_namespace, name_of(pod)):
                    other_objects.setdefault(SERVICE, {})[name_of(pod)] = named_object
        as_created = self._first_revisions.get(job_uid, revision(job)) == revision(job)
        return Observed(job, pods, services, other_objects, as_created, self._reconcile_counts.get(job_uid, 0))

    def _drop_repeated_events(self, job: str, decision: Decision) -> Decision:
        leading_count = 0
        while leading_count < len(decision.writes) and isinstance(decision.writes[leading_count], Record):
            leading_count += 1
        leading_events = [w for w in decision.writes[:leading_count] if isinstance(w, Record)]
        last_events = self._last_events.get(job, frozenset())
        new_events = tuple(r for r in leading_events if (r.reason, r.message) not in last_events)
        self._last_events[job] = frozenset((w.reason, w.message) for w in decision.writes if isinstance(w, Record))
        return replace(decision, writes=(*new_events, *decision.writes[leading_count:]))


def controllers(parity: Parity = DEFAULT) -> list[JobController]:
    """One controller for each job kind."""
    return [JobController(kind, parity) for kind in JOBS]
