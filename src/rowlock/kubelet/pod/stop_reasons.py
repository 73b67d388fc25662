"""Why a pod's program was asked to end, by which action, and how it used its grace: the text of the event `Stopped`. Pure.

A kubelet is not told why a pod is deleted. It infers that from the objects at that moment: the pod's own marks, its job, and what
the job is a part of. `owners` are these: a pod's job, its JobSet, its TrainJob; the nearest first.
"""

import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rowlock import kinds
from rowlock.kubelet.pod.facts import Exit
from rowlock.kubelet.pod.spec import DEFAULT_GRACE, PodSpec
from rowlock.objects import (
    Object,
    annotations,
    condition,
    controller_of,
    dig,
    is_condition_true,
    is_deleting,
    is_digits,
    labels,
    meta,
    phase,
    timestamp,
)
from rowlock.training.batch_job.pods import is_active, is_tracked
from rowlock.training.jobset import model as jobset
from rowlock.training.model import INDEX_LABEL, TYPE_LABEL
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION

POD_DELETED, POD_REMOVED = "delete: the pod was deleted", "delete: the pod was deleted at once"
"""The reasons when neither the pod nor its job gives another one: with the object kept until the pod has ended, and without."""
_ENDS = {
    "Failed": "failed", "FailureTarget": "failed",
    "Succeeded": "succeeded", "Complete": "succeeded", "Completed": "succeeded", "SuccessCriteriaMet": "succeeded",
}  # fmt: skip
"""Condition of a job → how it ends; a batch/v1 Job has FailureTarget or SuccessCriteriaMet while its pods end."""
_LIMITS = ("the specified backoff limit", "specified deadline")
"""Parts of the operator's message about a limit that was reached."""
_EVICTIONS = (
    ("of its gang is", "node removal"),
    ("was preempted by higher priority", "preemption"),
    ("was preempted by", "reclaim"),
    ("moves to node", "consolidation"),
)
"""Part of the scheduler's message about an eviction → the action; all others are evictions."""
_OTHER_MARKS = {
    "DeletionByTaintManager": "node removal",
    "DeletionByPodGC": "node removal",
    "TerminationByKubelet": "eviction",
    "EvictionByEvictionAPI": "eviction",
}


def is_disrupted(pod: Object) -> bool:
    """Whether a condition of the pod says why it is being disrupted."""
    return is_condition_true(pod, "DisruptionTarget")


def is_surplus(pod: Object) -> bool:
    """Whether its batch/v1 Job has given an active pod up: it counts the end of such a pod no more, and deletes it next."""
    return _kind_of_owner(pod) is kinds.BATCH_JOB and is_active(pod) and not is_tracked(pod)


def deletion_reason(pod: Object, owners: Sequence[Object], *, was_surplus: bool = False) -> str:
    """Why a pod is being deleted: the action and its explanation. `was_surplus`: `is_surplus`, before it was deleted."""
    if is_disrupted(pod):
        mark = condition(pod, "DisruptionTarget") or {}
        message = str(mark.get("message") or "").partition("\n")[0].rstrip(".")
        if mark.get("reason") in _OTHER_MARKS:
            return f"{_OTHER_MARKS[str(mark['reason'])]}: {message}"
        return f"{next((action for words, action in _EVICTIONS if words in message), 'eviction')}: {message}"
    if _kind_of_owner(pod) not in kinds.WORKLOADS:
        return POD_DELETED
    if not owners or is_deleting(owners[-1]):
        return f"delete: its job was deleted{_by_whom(owners)}"
    if any(dig(owner, "spec.runPolicy.suspend") or dig(owner, "spec.suspend") for owner in owners):
        return f"suspend: its job was suspended{_by_whom(owners)}"
    for owner in reversed(owners):  # what the whole has ended for says more than the end of its part
        if reason := _end_of(owner):
            return reason
    if reason := _restart_of(owners):
        return reason
    if any(map(is_deleting, owners)):
        return "delete: its job was deleted"
    if (replicas := _replicas_of(pod, owners[0])) is not None:
        return f"scale-down: its job has {replicas} {labels(pod).get(TYPE_LABEL)} now"
    if was_surplus:
        return f"scale-down: its job runs at most {jobset.pods_at_a_time(owners[0].get('spec') or {})} of its pods at a time now"
    return POD_DELETED


def _kind_of_owner(pod: Object) -> kinds.Kind | None:
    owner = controller_of(pod) or {}
    return kinds.by_api_version(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))


def _end_of(job: Object) -> str:
    """What pods of a job are deleted for that has ended; "" if it has not."""
    for ended, word in _ENDS.items():
        if is_condition_true(job, ended):
            policy = dig(job, "spec.runPolicy.cleanPodPolicy") or "its operator's"
            action = f"cleanPodPolicy {policy}" if dig(job, "spec.runPolicy") is not None else "end of the job"
            why = str((condition(job, ended) or {}).get("message") or "").rstrip(".")
            return f"{action}: its job has {word}" + (f" ({why})" if why and word == "failed" else "")
    return ""


def _restart_of(owners: Sequence[Object]) -> str:
    """What a Job of a JobSet is deleted for that starts again; "" if it does not."""
    if len(owners) < 2 or jobset.attempt(owners[0]) >= int(dig(owners[1], "status.restarts") or 0):
        return ""
    why = str((condition(owners[1], jobset.RESTARTING) or {}).get("message") or "").rstrip(".")
    return "restart: its job starts again" + (f" ({why})" if why else "")


def as_deleted_gracefully(pod: Object, last_seen: Object, now: float) -> Object:
    """A pod whose object was taken away at once (`kubectl delete --force`, a lost node), changed as if it had been deleted with a
    grace: a kubelet gives its programs what was left of the grace that they had, else the pod's own. `last_seen`: the object before."""
    if is_deleting(last_seen):
        return last_seen
    own = dig(pod, "spec.terminationGracePeriodSeconds")
    grace = int(DEFAULT_GRACE if own is None else own)
    deletion = {"deletionTimestamp": timestamp(now + grace), "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**meta(pod), **deletion}}


def is_ended_by_job(job: Object | None, other_pods: Iterable[Object]) -> bool:
    """Whether a pod without another reason ends because its job has ended: by a limit, by another of its pods, or by its success
    policy. An operator deletes the others first and writes the job's condition afterwards."""
    if job is None:
        return False
    if (condition(job, "SuccessCriteriaMet") or {}).get("reason") == "SuccessPolicy":
        return True
    found = next(
        (condition(job, ended) for ended in ("Failed", "FailureTarget") if is_condition_true(job, ended)), None
    )
    if found is None:
        return False
    message = str(found.get("message") or "")
    return any(limit in message for limit in _LIMITS) or any(phase(pod) == "Failed" for pod in other_pods)


def _by_whom(owners: Sequence[Object]) -> str:
    name = next((name for owner in owners if (name := annotations(owner).get(STOPPED_BY_ANNOTATION))), "")
    return f" by `{name}`" if name else ""


def _replicas_of(pod: Object, job: Object) -> int | None:
    """The job's number of replicas of the pod's type, if the pod's index is beyond it; else None."""
    kind, index = str(labels(pod).get(TYPE_LABEL) or ""), str(labels(pod).get(INDEX_LABEL) or "")
    if not kind or not is_digits(index):
        return None
    specs: Mapping[str, Any] = next(
        (value for name, value in (job.get("spec") or {}).items() if name.endswith("ReplicaSpecs") and value), {}
    )
    count = next((spec.get("replicas") for name, spec in specs.items() if name.lower() == kind), 0)
    return count if isinstance(count, int) and int(index) >= count else None


def stop_reason(
    pod: PodSpec,
    evicted: str,
    owners: Sequence[Object],
    *,
    deadline_over: bool,
    was_surplus: bool = False,
    namespace: Object | None = None,
) -> str:
    """Why the kubelet stops the pod's programs now. `namespace`: the pod's own, which deletes what is in it when it is deleted."""
    if evicted:
        return f"eviction: {evicted.rstrip('. ')}"
    if pod.deletion_time is not None and not is_disrupted(pod.object) and namespace and is_deleting(namespace):
        return f"namespace deletion: the namespace {pod.namespace} was deleted with all that is in it"
    if pod.deletion_time is not None or is_disrupted(pod.object):
        return deletion_reason(pod.object, owners, was_surplus=was_surplus)
    if deadline_over:
        return f"deadline: the pod's activeDeadlineSeconds ({pod.active_deadline:g}) are over"
    return "the containers that it ran beside have ended"


def stop_sentence(container: str, reason: str, ended: Exit) -> str:
    """The event's message: why a program was asked to end, and how it ended."""
    grace, took = math.ceil(ended.stop_grace or 0.0), max(0.0, ended.stop_took)  # a deletion has whole seconds
    if grace <= 0:
        end = "It had no grace, and was killed"
    elif ended.used_grace:
        end = f"It used the {grace:g} s of its grace up, and was killed"
    else:
        known = {number.value: number.name for number in signal.Signals}
        name = known.get(ended.stop_signal, f"signal {ended.stop_signal}")
        end = f"It ended {took:.1f} s after {name}, of {grace:g} s of grace, with exit code {ended.code}"
    return f"Container {container} was stopped ({reason}). {end}"
