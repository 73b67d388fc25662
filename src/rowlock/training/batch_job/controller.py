"""`BatchJobController` reconciles batch/v1 Jobs; `JobPodRelease` releases pods whose Job is gone or finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rowlock.api import NOTHING, Change, Create, Decision, Delete, DeleteOptions, Patch, View, Write
from rowlock.kinds import BATCH_JOB, POD, POD_GROUP, Kind
from rowlock.objects import (
    Key,
    Object,
    condition,
    controller_of,
    dig,
    is_controlled_by,
    is_deleting,
    key,
    labels,
    name,
    namespace,
    owner_reference,
    revision,
    seconds,
    uid,
)
from rowlock.selectors import EVERYTHING, Selector, from_label_selector
from rowlock.training.batch_job.delays import FailureMemory
from rowlock.training.batch_job.gang import sync_gang
from rowlock.training.batch_job.look import ObservedJob, release_pod
from rowlock.training.batch_job.model import (
    COMPLETE,
    CONTROLLER_UID_LABEL,
    FAILED,
    TRACKING_FINALIZER,
    is_finished,
    is_ours,
    parse_batch_job,
)
from rowlock.training.batch_job.pods import is_tracked
from rowlock.training.batch_job.reconcile import reconcile
from rowlock.training.job_changes import is_only_bound, pace_decision


def _owner_key(pod: Object) -> Key | None:
    """The key of the Job that owns a pod; None if none does."""
    owner = controller_of(pod)
    if owner is None or owner.get("kind") != BATCH_JOB.name or owner.get("apiVersion") != BATCH_JOB.api_version:
        return None
    return Key(namespace(pod), str(owner.get("name")))


def _selector_of(job: Object) -> Selector | None:
    return from_label_selector(dig(job, "spec.selector", {}))


class BatchJobController:
    """Runs the Jobs whose managedBy names no other controller.

    In memory it keeps each Job's failures since its last success, which determine the back-off, and the revision of the Job at which it
    last created pods: if the Job still has that revision, some creates were refused."""

    name = "job"

    def __init__(self, *, declares_gangs: bool = False) -> None:
        """`declares_gangs`: create PodGroups, because a gang scheduler is present."""
        self._declares_gangs = declares_gangs
        self.kinds: tuple[Kind, ...] = (BATCH_JOB, POD, *((POD_GROUP,) if declares_gangs else ()))
        self._memories: dict[str, FailureMemory] = {}
        self._created_at: dict[str, int] = {}
        self._refused: set[str] = set()
        """Uids of Jobs with a refused pod, until no pod is left to create."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The Job itself, the Job that owns a pod, and Jobs that may adopt a pod without an owner."""
        if change.kind is BATCH_JOB:
            if change.type == "Deleted":
                self._forget(uid(change.object))
            return (key(change.object),)
        if change.kind is POD_GROUP and change.type != "Deleted":
            return ()
        if change.kind is POD and is_only_bound(change):
            return ()
        owners = [_owner_key(pod) for pod in (change.object, change.old) if pod]
        if (
            change.kind is POD
            and labels(change.object)
            and controller_of(change.object) is None
            and change.type != "Deleted"
        ):
            jobs = view.all(BATCH_JOB, namespace(change.object))
            owners += [key(job) for job in jobs if _adopts(job, change.object)]
        return tuple(dict.fromkeys(owner for owner in owners if owner is not None))

    def _forget(self, job_uid: str) -> None:
        self._memories.pop(job_uid, None)
        self._created_at.pop(job_uid, None)
        self._refused.discard(job_uid)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one Job."""
        job = view.get(BATCH_JOB, key.namespace, key.name)
        if job is None:
            return NOTHING
        if is_finished(job):
            self._forget(uid(job))
            return _expire(job, now)
        if not is_ours(job):
            return NOTHING
        pods, claims = _claim_pods(view, job)
        if claims:
            return Decision(tuple(claims))
        memory = self._memories.setdefault(uid(job), FailureMemory())
        batch_job = parse_batch_job(job)
        had_refusal = uid(job) in self._refused or self._created_at.get(uid(job)) == revision(job)
        decision = pace_decision(reconcile(ObservedJob(batch_job, pods, memory, had_refusal), now), len(pods))
        self._note_creates(uid(job), revision(job), decision, had_refusal=had_refusal)
        gang = sync_gang(view, batch_job, pods) if self._declares_gangs else []
        return replace(decision, writes=(*gang, *decision.writes)) if gang else decision

    def _note_creates(self, job_uid: str, job_revision: int, decision: Decision, *, had_refusal: bool) -> None:
        if not any(isinstance(write, Create) for write in decision.writes):
            self._created_at.pop(job_uid, None)
            self._refused.discard(job_uid)
        elif had_refusal:
            self._refused.add(job_uid)
        else:
            self._created_at[job_uid] = job_revision


def _adopts(job: Object, pod: Object) -> bool:
    """Whether the Job may adopt a pod without a controller: its selector matches."""
    if is_deleting(job) or is_deleting(pod) or is_finished(job) or not is_ours(job):
        return False
    if not dig(job, "spec.manualSelector", False) and labels(pod).get(CONTROLLER_UID_LABEL) != uid(job):
        return False
    selector = _selector_of(job)
    return selector is not None and bool(selector) and selector.matches(labels(pod))


def _claim_pods(view: View, job: Object) -> tuple[list[Object], list[Write]]:
    """(the Job's pods, writes that adopt matching pods without an owner and release pods that no longer match)."""
    selector = _selector_of(job) or EVERYTHING
    owned = [p for p in view.by_owner(POD, uid(job)) if is_controlled_by(p, uid(job))]
    claimed = [p for p in owned if selector.matches(labels(p))]
    writes: list[Write] = []
    if not is_deleting(job):
        writes += [_disown(p, job) for p in owned if not selector.matches(labels(p)) and not is_deleting(p)]
        if dig(job, "spec.manualSelector", False):
            candidates = view.all(POD, namespace(job))
        else:
            candidates = view.by_label(POD, namespace(job), CONTROLLER_UID_LABEL, uid(job))
        writes += [_adopt(p, job) for p in candidates if controller_of(p) is None and _adopts(job, p)]
    return claimed, writes


def _adopt(pod: Object, job: Object) -> Write:
    metadata = {"uid": uid(pod), "ownerReferences": [owner_reference(job)], "finalizers": [TRACKING_FINALIZER]}
    return Patch(POD, namespace(pod), name(pod), {"metadata": metadata}, "strategic")


def _disown(pod: Object, job: Object) -> Write:
    metadata = {
        "uid": uid(pod),
        "ownerReferences": [{"$patch": "delete", "uid": uid(job)}],
        "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
    }
    return Patch(POD, namespace(pod), name(pod), {"metadata": metadata}, "strategic")


def _expire(job: Object, now: float) -> Decision:
    """Delete a finished Job (in the foreground) once ttlSecondsAfterFinished has passed; without one it stays."""
    ttl = dig(job, "spec.ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job):
        return NOTHING
    ends = [condition(job, type_) or {} for type_ in (COMPLETE, FAILED)]
    ended = max(seconds(end.get("lastTransitionTime")) for end in ends if end.get("status") == "True")
    if (remaining := ended + ttl - now) > 0:
        return Decision(requeue_after=remaining)
    options = DeleteOptions(propagation="Foreground", uid=uid(job))
    return Decision((Delete(BATCH_JOB, namespace(job), name(job), options),))


class JobPodRelease:
    """Removes the finalizer from pods that no Job will count any more, because the Job is gone or finished."""

    name = "job-pod-release"
    kinds: tuple[Kind, ...] = (BATCH_JOB, POD)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The keys of pods to release."""
        if change.kind is POD:
            return (key(change.object),) if change.type != "Deleted" and is_tracked(change.object) else ()
        if change.type == "Deleted" or is_finished(change.object):
            return [key(pod) for pod in view.by_owner(POD, uid(change.object)) if is_tracked(pod)]
        return ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Release one pod, if no Job will count it."""
        pod = view.get(POD, key.namespace, key.name)
        if pod is None or not is_tracked(pod):
            return NOTHING
        owner, owner_key = controller_of(pod), _owner_key(pod)
        if owner is not None:
            if owner_key is None:
                return NOTHING  # owned by another kind, which handles it
            job = view.get(BATCH_JOB, owner_key.namespace, owner_key.name)
            is_owner = job is not None and uid(job) == owner.get("uid")
            if job is not None and is_owner and not (is_finished(job) and is_ours(job)):
                return NOTHING
        return Decision((release_pod(pod),))


def controllers(*, declares_gangs: bool = False) -> list[BatchJobController | JobPodRelease]:
    """The controllers of batch/v1 Jobs."""
    return [BatchJobController(declares_gangs=declares_gangs), JobPodRelease()]
