"""One look at one job: what was seen, what is decided so far.

The pieces of the lifecycle read what was seen and say here what should happen; `decision` turns it into writes. Two
lists are kept apart: what is merely observed (`say`: an exit code, a pod in trouble) comes first, since it needs no
luck; then acts, each followed by its event, so that a refusal in the middle leaves a true record; the status comes
last, as in the operator: a job whose pods are refused has no status at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rowlock.api import Create, Decision, Delete, Patch, Record, Update, Write
from rowlock.kinds import POD, SERVICE, Kind
from rowlock.objects import Object, deleting, name, namespace, timestamp
from rowlock.training.conditions import Condition, Conditions, holds, put, same_story
from rowlock.training.framework import DEFAULT, Job, Parity, Replica, by_type

Level = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the operator sees of a job: its object, the pods it owns, the services with its labels, and the
    framework's other objects by kind and name."""

    job: Object
    pods: Sequence[Object] = ()
    services: Sequence[Object] = ()
    others: Mapping[Kind, Mapping[str, Object]] = field(default_factory=dict)
    as_created: bool = True
    """Nobody has changed the job since it was made, or the operator has started since. Only then it says Created: it
    notes that on the copy of the object that it was shown first."""
    looks: int = 0
    """How often the job has been looked at before, as far as the operator remembers."""
    finished_for: float = math.inf
    """Seconds since the job was first seen finished, as far as the operator remembers."""


class Turn:
    """What is decided while looking at one job. Made for one look and thrown away."""

    def __init__(self, job: Job, seen: Seen, now: float, parity: Parity = DEFAULT) -> None:
        status = job.object.get("status") or {}
        self.job, self.seen, self.now, self.parity = job, seen, now, parity
        self.before: Object = status
        self.conditions: Conditions = tuple(status.get("conditions") or ())
        self.counts: dict[str, dict[str, int]] = {
            type_: {k: int(v) for k, v in (counts or {}).items() if k in ("active", "succeeded", "failed")}
            for type_, counts in (status.get("replicaStatuses") or {}).items()
        }
        self.start: str | None = status.get("startTime")
        self.completion: str | None = status.get("completionTime")
        self.pods = by_type(seen.pods)
        self.services = {**seen.others.get(SERVICE, {}), **{name(s): s for s in seen.services}}
        self.said: list[Record] = []
        self.concluded: list[Record] = []
        self.acts: list[Write] = []
        self.judging = False
        """Once it is, what is said waits for the acts: of a job whose pods are refused nothing is concluded."""

    # ---------------------------------------------------------------- conditions and counts

    def holds(self, type_: str) -> bool:
        return holds(self.conditions, type_)

    def put(self, type_: str, word: str, message: str, status: str = "True") -> None:
        """Set a condition; its reason is the kind's name and `word`."""
        reason = self.job.framework.reason(word)
        self.conditions = put(self.conditions, Condition(type_, reason, message, status), self.now)

    def reset(self, replica: Replica) -> dict[str, int]:
        """Begin counting a replica type anew."""
        self.counts[replica.type] = {"active": 0, "succeeded": 0, "failed": 0}
        return self.counts[replica.type]

    def count(self, type_: str, what: str) -> int:
        return self.counts.get(type_, {}).get(what, 0)

    def started(self, *, again: bool = False) -> None:
        if self.start is None or again:
            self.start = timestamp(self.now)

    def completed(self) -> None:
        self.completion = self.completion or timestamp(self.now)

    # ---------------------------------------------------------------- events and writes

    def record(self, level: Level, reason: str, message: str) -> Record:
        return Record(self.job.object, level, reason, message, self.job.framework.operator)

    def say(self, level: Level, reason: str, message: str) -> None:
        """An event about what is seen or concluded."""
        (self.concluded if self.judging else self.said).append(self.record(level, reason, message))

    def tell(self, level: Level, word: str, message: str) -> None:
        """`say` with the kind's name before the reason."""
        self.say(level, self.job.framework.reason(word), message)

    def create(self, kind: Kind, obj: Object, done: Record | None = None, *failed: Record) -> None:
        """Make an object, with the events for success and refusal."""
        self.acts.append(Create(kind, obj, failed))
        if done:
            self.acts.append(done)

    def create_owned(self, kind: Kind, obj: Object) -> None:
        """Make a pod or service, with the operator's usual events."""
        done = self.record("Normal", f"SuccessfulCreate{kind.name}", f"Created {kind.singular}: {name(obj)}")
        self.create(kind, obj, done, self.record("Warning", f"FailedCreate{kind.name}", "Error creating: {error}"))

    def patch(self, kind: Kind, obj: Object, patch: Object) -> None:
        self.acts.append(Patch(kind, namespace(obj), name(obj), patch))

    def update(self, kind: Kind, obj: Object) -> None:
        self.acts.append(Update(kind, obj))

    def delete(self, kind: Kind, obj: Object) -> None:
        """Remove a pod or service, unless it is on its way out."""
        if deleting(obj):
            return
        failed = self.record("Warning", f"FailedDelete{kind.name}", "Error deleting: {error}")
        self.acts.append(Delete(kind, namespace(obj), name(obj), failed=(failed,)))
        self.acts.append(self.record("Normal", f"SuccessfulDelete{kind.name}", f"Deleted {kind.singular}: {name(obj)}"))

    def delete_with_service(self, pod: Object) -> None:
        self.delete(POD, pod)
        if service := self.services.get(name(pod)):
            self.delete(SERVICE, service)

    def delete_job(self) -> None:
        """The job itself goes: nothing is left to write a status on."""
        job = self.job
        self.acts.append(
            Delete(
                job.framework.kind,
                job.namespace,
                job.name,
                failed=(self.record("Warning", "FailedDeleteJob", "Error deleting: {error}"),),
            )
        )
        self.acts.append(self.record("Normal", job.framework.ttl_reason, f"Deleted job: {job.name}"))

    # ---------------------------------------------------------------- the result

    def status(self) -> Object:
        """The job's status as decided; times of conditions stay where nothing else about them changed."""
        status = dict(self.before)
        old = tuple(self.before.get("conditions") or ())
        status["conditions"] = list(old if same_story(old, self.conditions) else self.conditions)
        status["replicaStatuses"] = {type_: self._counted(type_) for type_ in self.counts}
        status |= {"startTime": self.start, "completionTime": self.completion}
        return {k: v for k, v in status.items() if v not in (None, [], {}) or k in self.before}

    def _counted(self, type_: str) -> Object:
        counts: Object = {k: v for k, v in self.counts[type_].items() if v}
        if self.job.framework.selector and type_ in self.job.replicas:
            labels = {**self.job.labels, "training.kubeflow.org/replica-type": type_.lower()}
            counts["selector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        elif stale := ((self.before.get("replicaStatuses") or {}).get(type_) or {}).get("selector"):
            counts["selector"] = stale
        return counts

    def finish(self, again: float | None = None) -> Decision:
        """The decision with the status written where it changed."""
        writes: list[Write] = [*self.said, *self.acts, *self.concluded]
        status = self.status()
        if status != self.before:
            writes.append(Update(self.job.framework.kind, {**self.job.object, "status": status}, "status"))
        return Decision(tuple(writes), again)

    def leave(self, *, stuck: bool = False) -> Decision:
        """The decision without a status."""
        return Decision((*self.said, *self.acts, *self.concluded), stuck=stuck)
