"""What becomes of a job whose pods are evicted on a cluster with Kubeflow's training operator, and what a job says so that it goes on.

That operator takes a deleted pod for a failed one. With `Never` the job is then Failed for ever. With `OnFailure` the pods are made
anew, and `backoffLimit: 1` fails the job at the first container that is started again in its pod: a program that fails runs
twice at most, and one that was evicted begins again as often as it is evicted. `ExitCode` is no way: it fails a program that
answers SIGTERM with 1, as torchrun does, and repeats one that was killed for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rowlock.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, Kind, by_object
from rowlock.objects import Object, dig, is_condition_true, labels
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.model.from_objects import is_preemptible, priority_value
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.training.pod_group import PREEMPTIBILITY_LABEL, PRIORITY_LABEL

RESUMED_KINDS = (PYTORCHJOB, PADDLEJOB, JAXJOB)
"""Kinds of which the operator makes an evicted pod anew; of the others a pod that is deleted while it runs fails the job."""
RESTARTS_ANNOTATION = "rowlock.dev/restarts"
EVICTED_ONLY = "evicted"
"""Its value on a job that was asked to start a failed program not again, and has `OnFailure` for the sake of evictions."""
_CLEAN_UP = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}


def can_be_evicted(job: Object, classes: Mapping[str, int]) -> bool:
    """Whether a scheduler may take a job's room back. `classes`: the values of the cluster's PriorityClasses, as far as known."""
    marked = labels(job)
    value = priority_value(marked.get(PRIORITY_LABEL, ""), classes)
    return is_preemptible(marked.get(PREEMPTIBILITY_LABEL, ""), value)


def resumes(kind: Kind) -> bool:
    """Whether a job of this kind can go on after an eviction, where Kubeflow's operator runs it."""
    return kind in RESUMED_KINDS


def restart_if_evicted(job: Object) -> Object:
    """A job whose pods have just been given `OnFailure`, and that was asked for no second start: it gets none beyond the one by
    which the operator sees that the program failed."""
    policy = {**(job["spec"].get("runPolicy") or {}), "backoffLimit": 1}
    notes = {**annotations_of(job), RESTARTS_ANNOTATION: EVICTED_ONLY}
    metadata = {**job["metadata"], "annotations": notes}
    return {**job, "metadata": metadata, "spec": {**job["spec"], "runPolicy": policy}}


def failed_job_patch(job: Object) -> dict[str, Any] | None:
    """What is written on a job that was submitted through rowlock when it has failed, so that its operator stops what still runs; None =
    nothing is. Written at the submit it would stop workers of a job that succeeds, too, which may end later than their master."""
    is_submitted = (
        REQUEST_ANNOTATION in annotations_of(job) or annotations_of(job).get(RESTARTS_ANNOTATION) == EVICTED_ONLY
    )
    if not is_submitted or not is_condition_true(job, "Failed"):
        return None
    return None if dig(job, "spec.runPolicy.cleanPodPolicy") else _CLEAN_UP


def eviction_notice(job: Object, policies: Collection[str], title: str) -> str:
    """What is said at the submit of a preemptible job that an eviction would end; "" = it goes on. `policies` are the restartPolicies of
    its pods, `title` is who evicts."""
    kind = by_object(job)
    fails = f"the job is preemptible: when {title} evicts it, Kubeflow's training operator takes it for failed"
    if not resumes(kind):
        return f"{fails}, as every {kind.name}, and it does not start again: make it non-preemptible to be sure of its room"
    if "Never" in policies:
        return f"{fails}, since its restartPolicy is Never, and it does not start again: leave the policy out, or make it non-preemptible"
    return ""
