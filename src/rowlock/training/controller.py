"""`JobController`: one kind of job, from a `View` to a `Decision`. Changes of the job and of what it owns wake it."""

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
    deleting,
    is_true,
    key,
    labels,
    namespace,
    revision,
    uid,
)
from rowlock.objects import name as name_of
from rowlock.training.defaults import read
from rowlock.training.framework import DEFAULT, JOB_LABEL, OPERATOR_LABEL, Parity
from rowlock.training.job import reconcile
from rowlock.training.registry import FRAMEWORKS
from rowlock.training.turn import Seen

TAKEN_BACK = "PreemptionByScheduler"
"""The reason of the condition DisruptionTarget that the scheduler sets on a pod before it evicts it."""


def as_judged(pod: Object) -> Object:
    """The pod as the operator judges it. One that the scheduler took back has neither failed nor succeeded, however its
    program ended: it waits, and its slot is filled anew when it is gone. So a reclaimed job resumes by itself whatever
    its restartPolicy; on a cluster with KAI, `Never` would stay Failed for ever. A pod that bears the mark but is not
    being deleted was spared in the end: what becomes of it counts."""
    mark = condition(pod, "DisruptionTarget") if deleting(pod) else None
    if mark is None or mark.get("status") != "True" or mark.get("reason") != TAKEN_BACK:
        return pod
    return {**pod, "status": {"phase": "Pending"}}


class JobController:
    """The operator of one job kind.

    It remembers, for each job, the events of its last look: a cause that continues is told once, not at every look.
    Those events stand before all other writes, so they are never lost; and forgetting them only tells them again. And
    it remembers since when a job is finished, to the fraction of a second, for `Parity.linger`."""

    def __init__(self, kind: Kind, parity: Parity = DEFAULT) -> None:
        self.framework = FRAMEWORKS[kind]
        self.parity = parity
        self.name = self.framework.operator
        self.kinds: tuple[Kind, ...] = (kind, POD, SERVICE, *self.framework.dependents)
        self._told: dict[str, frozenset[tuple[str, str]]] = {}
        self._finished: dict[str, float] = {}
        self._first: dict[str, int] = {}
        """The revision at which each job was first seen."""
        self._looks: dict[str, int] = {}

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The job itself, or the job that owns what has changed."""
        mine = self.framework.kind
        if change.kind is mine:
            self._note(change)
            return (key(change.object),)
        found = []
        for obj in (change.object, change.old):
            owner = controller_of(obj) if obj else None
            if owner and owner.get("kind") == mine.name and str(owner.get("apiVersion", "")).startswith(mine.group):
                found.append(Key(namespace(change.object), str(owner["name"])))
        return tuple(dict.fromkeys(found))

    def _note(self, change: Change) -> None:
        own = uid(change.object)
        if change.type == "Added":
            self._first[own] = revision(change.object)
        elif change.type == "Deleted":
            for memory in (self._told, self._finished, self._first, self._looks):
                memory.pop(own, None)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one job."""
        job = view.get(self.framework.kind, key.namespace, key.name)
        if job is None:
            return NOTHING
        seen = self.look(view, job)
        self._looks[uid(job)] = seen.looks + 1
        if self.parity.linger and is_true(job, "Succeeded"):
            seen = replace(seen, finished_for=now - self._finished.setdefault(uid(job), now))
        decision = reconcile(self.framework, seen, now, self.parity)
        return self._once(uid(job), decision) if self.parity.events_once else decision

    def look(self, view: View, job: Object) -> Seen:
        """What the operator sees of a job: its own pods, and all services with its labels."""
        where, called, own = namespace(job), name_of(job), uid(job)
        pods = [
            as_judged(p)
            for p in view.labelled(POD, where, JOB_LABEL, called)
            if labels(p).get(OPERATOR_LABEL) == self.name and (controller_of(p) or {}).get("uid") == own
        ]
        services = [
            s
            for s in view.labelled(SERVICE, where, JOB_LABEL, called)
            if labels(s).get(OPERATOR_LABEL) == self.name
            and (not self.framework.adopts_services or (controller_of(s) or {}).get("uid", own) == own)
        ]
        others = {k: {name_of(o): o for o in view.owned(k, own)} for k in self.framework.dependents}
        for kind, name in self.framework.named(read(self.framework, job)):
            if found := view.get(kind, where, name):
                others.setdefault(kind, {})[name] = found
        for pod in pods:  # clean-up takes the Service of the pod's name, whosever it is
            if found := view.get(SERVICE, where, name_of(pod)):
                others.setdefault(SERVICE, {})[name_of(pod)] = found
        as_created = self._first.get(own, revision(job)) == revision(job)
        return Seen(job, pods, services, others, as_created, self._looks.get(own, 0))

    def _once(self, job: str, decision: Decision) -> Decision:
        leading = 0
        while leading < len(decision.writes) and isinstance(decision.writes[leading], Record):
            leading += 1
        said = [w for w in decision.writes[:leading] if isinstance(w, Record)]
        known = self._told.get(job, frozenset())
        news = tuple(r for r in said if (r.reason, r.message) not in known)
        self._told[job] = frozenset((w.reason, w.message) for w in decision.writes if isinstance(w, Record))
        return replace(decision, writes=(*news, *decision.writes[leading:]))


def controllers(parity: Parity = DEFAULT) -> list[JobController]:
    """One for each job kind."""
    return [JobController(kind, parity) for kind in JOBS]
