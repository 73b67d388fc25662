"""The state of one reconcile of a Job: what was observed, and what is decided so far. Created for each reconcile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rowlock.api import Create, Decision, Delete, DeleteOptions, Patch, Record, Update, Write
from rowlock.kinds import BATCH_JOB, POD
from rowlock.objects import Object, dig, name, namespace, phase, timestamp, uid
from rowlock.training.batch_job import indexes
from rowlock.training.batch_job.delays import FailureMemory
from rowlock.training.batch_job.model import EVENT_SOURCE, TRACKING_FINALIZER, BatchJob
from rowlock.training.batch_job.pods import (
    counts_for,
    has_failed,
    index_failures,
    index_of,
    is_active,
    is_ready,
    is_terminating,
    is_tracked,
)
from rowlock.training.batch_job.policies import judge_failure

DROPPED_ZEROS = ("active", "succeeded", "failed")
"""Counters of the status that are omitted when they are 0."""


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A Job and the pods that it owns."""

    job: BatchJob
    pods: Sequence[Object] = ()
    memory: FailureMemory = field(default_factory=FailureMemory)
    had_refusal: bool = False
    """Some creates of the last reconcile were refused: now the status is written before the next attempt, so that it is written at all."""


class Look:
    """One reconcile: the Job's observed counters, updated by the decisions made so far."""

    def __init__(self, observed: ObservedJob, now: float) -> None:
        job, pods = observed.job, list(observed.pods)
        self.job, self.pods, self.memory, self.now = job, pods, observed.memory, now
        self.status: dict[str, Any] = dict(job.status)
        self.conditions: list[Object] = list(job.status.get("conditions") or ())
        self.uncounted: dict[str, list[str]] = {
            k: list(dig(job.status, f"uncountedTerminatedPods.{k}") or ()) for k in ("succeeded", "failed")
        }
        self.active_pods = [p for p in pods if is_active(p)]
        self.active = len(self.active_pods)
        self.ready = sum(map(is_ready, self.active_pods))
        self.terminating = sum(map(is_terminating, pods))
        self.start_time: str | None = job.status.get("startTime") or (None if job.is_suspended else timestamp(now))
        new_succeeded, new_failed = self._new_ends()
        self.memory.note(new_succeeded, new_failed, {uid(p) for p in pods})
        counted = [p for p in new_failed if judge_failure(p, job.failure_rules).is_counted]
        self.failed = int(job.status.get("failed", 0)) + len(counted) + len(self.uncounted["failed"])
        self.succeeded = int(job.status.get("succeeded", 0)) + len(new_succeeded) + len(self.uncounted["succeeded"])
        self.known_indexes = job.indexes_of("completedIndexes") if job.is_indexed else indexes.Indexes()
        self.succeeded_indexes = self.known_indexes
        self.failed_indexes: indexes.Indexes | None = None
        self.delayed_pods: dict[int, Object] = {}
        if job.is_indexed:
            self._look_at_indexes()
        self._had_refusal = observed.had_refusal
        self._acts: list[Write] = []
        self._creates: list[Create] = []
        self._records: list[Record] = []
        self._releases: list[Write] = []
        self._requeue_after: float | None = None

    def _new_ends(self) -> tuple[list[Object], list[Object]]:
        """Pods that have succeeded or failed and are not in the status yet."""
        valid = [p for p in self.pods if is_tracked(p) and counts_for(p, self.job)]
        succeeded = [p for p in valid if phase(p) == "Succeeded" and uid(p) not in self.uncounted["succeeded"]]
        failed = [p for p in valid if has_failed(p, self.job) and uid(p) not in self.uncounted["failed"]]
        return succeeded, failed

    def _look_at_indexes(self) -> None:
        job = self.job
        tracked = [(index, p) for p in self.pods if is_tracked(p) and (index := index_of(p, job)) is not None]
        self.succeeded_indexes |= indexes.of_numbers(i for i, p in tracked if phase(p) == "Succeeded")
        self.succeeded = len(self.succeeded_indexes)
        if job.limit_per_index is None:
            return
        failed = [(index, p) for index, p in tracked if has_failed(p, job)]
        new = indexes.of_numbers(i for i, p in failed if self._fails_index(p, job.limit_per_index))
        self.failed_indexes = job.indexes_of("failedIndexes") | new
        active = {index_of(p, job) for p in self.active_pods}
        for index, pod in failed:
            if index in self.succeeded_indexes or index in self.failed_indexes or index in active:
                continue
            other = self.delayed_pods.get(index)
            if other is None or sum(index_failures(other)) <= sum(index_failures(pod)):
                self.delayed_pods[index] = pod

    def _fails_index(self, pod: Object, limit: int) -> bool:
        verdict = judge_failure(pod, self.job.failure_rules)
        return verdict.fails_index or (verdict.is_counted and index_failures(pod)[0] >= limit)

    # ------------------------------------------------------------ what is decided

    def look_again(self, delay: float) -> None:
        """Requeue the Job in at most `delay` seconds."""
        self._requeue_after = delay if self._requeue_after is None else min(delay, self._requeue_after)

    def wait(self, delay: float) -> None:
        """Create no pod for `delay` seconds. While no pod is ready, the status reports 0 active pods."""
        self.look_again(delay)
        self.active = self.active if self.ready else 0

    def restart_clock(self) -> None:
        self.start_time = timestamp(self.now)

    def record(self, level: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Add an event, to be written after the status."""
        self._records.append(self._event(level, reason, message))

    def _event(self, level: Literal["Normal", "Warning"], reason: str, message: str) -> Record:
        return Record(self.job.object, level, reason, message, EVENT_SOURCE)

    def set_condition(self, type_: str, status: str, reason: str, message: str) -> bool:
        """Set a condition; True if that changes it. A condition that does not exist is not added with status False."""
        now = timestamp(self.now)
        new = {"type": type_, "status": status, "lastProbeTime": now, "lastTransitionTime": now}
        new |= {"reason": reason, "message": message}
        for place, old in enumerate(self.conditions):
            if old.get("type") == type_:
                if all(old.get(k) == new[k] for k in ("status", "reason", "message")):
                    return False
                self.conditions[place] = new
                return True
        if status != "False":
            self.conditions.append(new)
        return status != "False"

    def create(self, pod: Object) -> None:
        """Create a pod, which counts as active."""
        failure = self._event("Warning", "FailedCreate", "Error creating: {error}")
        self._creates.append(Create(POD, pod, (failure,)))

    def delete_active_pods(self) -> None:
        """Delete the active pods because the Job ends; each is still counted by how it ends."""
        for pod in self.active_pods:
            self._delete(pod)

    def remove_pods(self, pods: Sequence[Object]) -> None:
        """Delete pods without counting them, because there are too many or the Job is suspended."""
        self._acts += [release_pod(pod) for pod in pods if is_tracked(pod)]
        for pod in pods:
            self._delete(pod)

    def _delete(self, pod: Object) -> None:
        options = DeleteOptions(uid=uid(pod))
        self._acts.append(Delete(POD, namespace(pod), name(pod), options))
        self._acts.append(self._event("Normal", "SuccessfulDelete", f"Deleted pod: {name(pod)}"))
        self.active -= 1
        self.ready -= is_ready(pod)
        self.terminating += 1

    def release(self, pod: Object) -> None:
        """Remove the pod's finalizer after the status is written: its end is in the status, or does not count."""
        self._releases.append(release_pod(pod))

    def decision(self) -> Decision:
        """The writes: pods, then the status, then the finalizers of pods that the status now has. A refused create stops the remaining
        writes, so if that happened before, creates come last."""
        created_event = self._event("Normal", "SuccessfulCreate", "Created pod: {name}")
        creates: list[Write] = [write for create in self._creates for write in (create, created_event)]
        if not self._had_refusal:
            self.active += len(self._creates)
        status: list[Write] = [*self._status_write(), *self._records]
        told = (*status, *self._releases, *creates) if self._had_refusal else (*creates, *status, *self._releases)
        writes = (*self._acts, *told)
        return Decision(writes, requeue_after=self._requeue_after)

    @property
    def creates_pods(self) -> bool:
        return bool(self._creates)

    def _status_write(self) -> list[Write]:
        status = {**self.status, "active": self.active, "ready": self.ready, "terminating": self.terminating}
        status["uncountedTerminatedPods"] = {k: v for k, v in self.uncounted.items() if v}
        if self.conditions:
            status["conditions"] = self.conditions
        if self.start_time:
            status["startTime"] = self.start_time
        status = {k: v for k, v in status.items() if v or k not in DROPPED_ZEROS}
        if status == self.job.status:
            return []
        return [Update(BATCH_JOB, {**self.job.object, "status": status}, "status")]


def release_pod(pod: Object) -> Write:
    patch = {"metadata": {"uid": uid(pod), "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}}
    return Patch(POD, namespace(pod), name(pod), patch, "strategic")
