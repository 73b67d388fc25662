"""Why a pod's program was asked to end, by which action, and how it used its grace: the text of the event `Stopped`. Pure.

A kubelet is not told why a pod is deleted. It infers that from the objects at that moment: the pod's own marks, and its job.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rowlock.kubelet.pod.facts import Exit
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import (
    Object,
    annotations,
    condition,
    dig,
    is_condition_true,
    is_deleting,
    is_digits,
    labels,
    meta,
    phase,
    timestamp,
)
from rowlock.training.model import INDEX_LABEL, TYPE_LABEL
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION

POD_DELETED = "delete: the pod was deleted"
"""The reason when neither the pod nor its job gives another one."""
_ENDS = {"Failed": "failed", "FailureTarget": "failed", "Succeeded": "succeeded", "Complete": "succeeded"}
"""Condition of a job → how it ends; a batch/v1 Job has FailureTarget while its pods end."""
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


def deletion_reason(pod: Object, job: Object | None, *, has_owner: bool) -> str:
    """Why a pod is being deleted: the action and its explanation. `job`: its owner, if it still exists."""
    if is_disrupted(pod):
        mark = condition(pod, "DisruptionTarget") or {}
        message = str(mark.get("message") or "").partition("\n")[0].rstrip(".")
        if mark.get("reason") in _OTHER_MARKS:
            return f"{_OTHER_MARKS[str(mark['reason'])]}: {message}"
        return f"{next((action for words, action in _EVICTIONS if words in message), 'eviction')}: {message}"
    if not has_owner:
        return POD_DELETED
    if job is None or is_deleting(job):
        return f"delete: its job was deleted{_by_whom(job)}"
    if dig(job, "spec.runPolicy.suspend") or dig(job, "spec.suspend"):
        return f"suspend: its job was suspended{_by_whom(job)}"
    for ended, word in _ENDS.items():
        if is_condition_true(job, ended):
            policy = dig(job, "spec.runPolicy.cleanPodPolicy") or "its operator's"
            action = f"cleanPodPolicy {policy}" if "runPolicy" in job["spec"] else "end of the job"
            why = str((condition(job, ended) or {}).get("message") or "").rstrip(".")
            return f"{action}: its job has {word}" + (f" ({why})" if why and word == "failed" else "")
    if (replicas := _replicas_of(pod, job)) is not None:
        return f"scale-down: its job has {replicas} {labels(pod).get(TYPE_LABEL)} now"
    return POD_DELETED


def as_deleted_gracefully(pod: Object, now: float) -> Object | None:
    """A pod that a controller deleted at once because its node was lost, changed as if deleted with its own grace period: this node's
    kubelet is alive, and gives the programs of such a pod that time. None for all other pods."""
    if not is_disrupted(pod) or dig(pod, "metadata.deletionGracePeriodSeconds") != 0:
        return None
    own = dig(pod, "spec.terminationGracePeriodSeconds")
    grace = 30 if own is None else int(own)
    deletion = {"deletionTimestamp": timestamp(now + grace), "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**meta(pod), **deletion}} if grace > 0 else None


def is_ended_by_job(job: Object | None, other_pods: Iterable[Object]) -> bool:
    """Whether a pod without another reason ends because its job has failed, by a limit or by another of its pods. An operator
    deletes the others first and writes the job's condition afterwards."""
    found = next((found for ended in ("Failed", "FailureTarget") if job and (found := condition(job, ended))), None)
    if found is None or found.get("status") != "True":
        return False
    message = str(found.get("message") or "")
    return any(limit in message for limit in _LIMITS) or any(phase(pod) == "Failed" for pod in other_pods)


def _by_whom(job: Object | None) -> str:
    name = str(annotations(job).get(STOPPED_BY_ANNOTATION) or "") if job else ""
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


def stop_reason(pod: PodSpec, evicted: str, job: Object | None, *, deadline_over: bool) -> str:
    """Why the kubelet stops the pod's programs now."""
    if evicted:
        return f"eviction: {evicted.rstrip('. ')}"
    if pod.deletion_time is not None or is_disrupted(pod.object):
        return deletion_reason(pod.object, job, has_owner=bool(pod.owner_uid))
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
        end = f"It ended {took:.1f} s after SIGTERM, of {grace:g} s of grace, with exit code {ended.code}"
    return f"Container {container} was stopped ({reason}). {end}"
