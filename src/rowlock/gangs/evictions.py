"""How jobs survive evictions on a cluster with Kubeflow's training operator: what the operator does, and the fields that a job needs.

The operator counts a deleted pod as failed. With `Never` the job is then Failed for good. With `OnFailure` the operator recreates the pods,
and `backoffLimit: 1` fails the job when a container is restarted in its pod: a failing program runs at most twice, and an evicted one
starts again after every eviction. `ExitCode` does not work: it fails a program that exits with 1 on SIGTERM, as torchrun does, and restarts
a killed one for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rowlock.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, Kind, by_object
from rowlock.objects import Object, condition, dig, is_condition_true, labels, seconds
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.model.from_objects import is_preemptible, priority_value
from rowlock.training.defaults import LINGER_S
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.training.pod_group import PREEMPTIBILITY_LABEL, PRIORITY_LABEL

RESUMED_KINDS = (PYTORCHJOB, PADDLEJOB, JAXJOB)
"""Kinds whose evicted pods the operator recreates. For other kinds a pod that is deleted while it runs fails the job."""
RESTARTS_ANNOTATION = "rowlock.dev/restarts"
EVICTED_ONLY = "evicted"
"""Value of `RESTARTS_ANNOTATION` on a job that was submitted without restarts and has `OnFailure` only to survive evictions."""
_CLEAN_UP = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}


def can_be_evicted(job: Object, classes: Mapping[str, int]) -> bool:
    """Whether a scheduler may evict the job's pods. `classes`: the known values of the cluster's PriorityClasses, by name."""
    marked = labels(job)
    value = priority_value(marked.get(PRIORITY_LABEL, ""), classes)
    return is_preemptible(marked.get(PREEMPTIBILITY_LABEL, ""), value)


def resumes(kind: Kind) -> bool:
    """Whether Kubeflow's operator lets a job of this kind go on after an eviction."""
    return kind in RESUMED_KINDS


def restart_if_evicted(job: Object) -> Object:
    """Set `backoffLimit: 1` and the annotation `RESTARTS_ANNOTATION` on a job that got `OnFailure` only to survive evictions. The operator
    needs one restart of a container to see that the program failed; the limit allows no more."""
    policy = {**(job["spec"].get("runPolicy") or {}), "backoffLimit": 1}
    notes = {**annotations_of(job), RESTARTS_ANNOTATION: EVICTED_ONLY}
    metadata = {**job["metadata"], "annotations": notes}
    return {**job, "metadata": metadata, "spec": {**job["spec"], "runPolicy": policy}}


def clean_up_patch(job: Object) -> dict[str, Any] | None:
    """The patch for an ended job that was submitted through rowlock, which makes its operator stop the pods that still run; None if there
    is none. Set at submit, that policy would stop the workers of a successful job as soon as their master has ended."""
    is_submitted = (
        REQUEST_ANNOTATION in annotations_of(job) or annotations_of(job).get(RESTARTS_ANNOTATION) == EVICTED_ONLY
    )
    if not is_submitted or not (is_condition_true(job, "Failed") or is_condition_true(job, "Succeeded")):
        return None
    return None if dig(job, "spec.runPolicy.cleanPodPolicy") else _CLEAN_UP


def remaining_grace(job: Object, now: float) -> float:
    """Seconds for which the other ranks of a job that has succeeded may still save and evaluate; 0 if they had them. The cluster's clock may
    differ from ours, but they never get more than the full grace."""
    succeeded = condition(job, "Succeeded") or {}
    since = seconds(dig(job, "status.completionTime") or succeeded.get("lastTransitionTime"))
    return min(max(0.0, since + LINGER_S - now), LINGER_S)


def eviction_notice(job: Object, policies: Collection[str], title: str) -> str:
    """The warning at submit of a preemptible job that an eviction would end; "" if the job would go on. `policies`: the restartPolicies of
    its pods; `title`: the scheduler's name for people."""
    kind = by_object(job)
    fails = f"the job is preemptible: when {title} evicts it, Kubeflow's training operator takes it for failed"
    if not resumes(kind):
        return f"{fails}, as every {kind.name}, and it does not start again: make it non-preemptible to be sure of its room"
    if "Never" in policies:
        return f"{fails}, since its restartPolicy is Never, and it does not start again: leave the policy out, or make it non-preemptible"
    return ""
