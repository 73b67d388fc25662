"""After a job's end: which pods are deleted (cleanPodPolicy), and when the job is (ttlSecondsAfterFinished)."""

from __future__ import annotations

from rowlock.objects import Object, dig, is_deleting, phase, seconds
from rowlock.training.conditions import SUCCEEDED
from rowlock.training.reconcile_context import ReconcileContext

UNFINISHED = ("Running", "Pending")


def clean_pods(context: ReconcileContext, policy: str) -> None:
    """Delete pods and their services by a cleanPodPolicy; an unknown policy acts like All."""
    context.delete_with_services([pod for pod in context.observed.pods if should_delete_pod(policy, pod)])


def should_delete_pod(policy: str, pod: Object) -> bool:
    """Whether a cleanPodPolicy (None, Running, All) deletes this pod; `Running` deletes Pending pods, too."""
    if policy == "None":
        return False
    return policy != "Running" or (phase(pod) or "Pending") in UNFINISHED


def remaining_cleanup_delay(context: ReconcileContext) -> float | None:
    """Seconds for which pods of a job that has just succeeded may still end by themselves; None = clean up now."""
    policy, linger = context.job.policy.clean_pod_policy, context.job.policy.linger
    if linger is None or not context.parity.linger:
        linger = context.parity.linger
    remaining = linger - context.observed.finished_for
    # A bound pod of a submitted job may have ended already, with its status still to come.
    is_submitted = context.job.policy.linger is not None
    has_ending_pods = any(
        (phase(p) == "Running" or (is_submitted and phase(p) != "Failed" and dig(p, "spec.nodeName")))
        and not is_deleting(p)
        and should_delete_pod(policy, p)
        for p in context.observed.pods
    )
    return remaining if remaining > 0.001 and has_ending_pods and context.has_condition(SUCCEEDED) else None


def time_to_live(context: ReconcileContext) -> float | None:
    """Seconds until the finished job is deleted; None = never: without a TTL or completionTime, or while it is suspended, as in the
    operator."""
    ttl = context.job.policy.ttl
    if ttl is None or context.job.policy.suspend or context.completion_time is None:
        return None
    return seconds(context.completion_time) + ttl - context.now
