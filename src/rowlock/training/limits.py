"""Two limits that fail a whole job: backoffLimit and activeDeadlineSeconds.

As in the operator, and despite its name, backoffLimit counts in-place restarts of containers in running pods, summed over the job; with 0,
a failed pod too. For a job that was submitted through rowlock it counts the job's restarts: the number of failures of the rank that failed
most often.
"""

from __future__ import annotations

from rowlock.objects import Object, phase, seconds
from rowlock.training.model import TYPE_LABEL
from rowlock.training.pod_events import is_active
from rowlock.training.reconcile_context import ReconcileContext

RESTARTABLE = ("OnFailure", "Always", "ExitCode")


def exceeded_limit_message(context: ReconcileContext) -> str:
    """Why the job must fail now; "" if it may continue."""
    if _is_backoff_exceeded(context):
        return f"Job {context.job.name} has failed because it has reached the specified backoff limit"
    remaining = seconds_to_deadline(context)
    if remaining is not None and remaining <= 0:
        return f"Job {context.job.name} has failed because it was active longer than specified deadline"
    return ""


def seconds_to_deadline(context: ReconcileContext) -> float | None:
    """Seconds until the deadline; None if there is none or the job has not started."""
    if context.job.policy.deadline is None or context.start_time is None:
        return None
    return seconds(context.start_time) + context.job.policy.deadline - context.now


def _is_backoff_exceeded(context: ReconcileContext) -> bool:
    limit = context.job.policy.backoff_limit
    if limit is None:
        return False
    if limit > 0 and context.job.policy.counts_job_restarts:
        return max((_pod_failures(pod) for pod in _restartable_pods(context)), default=0) > limit
    failed = sum(phase(p) == "Failed" for p in context.observed.pods)
    active = sum(is_active(p) for p in context.observed.pods)
    counted_failures = sum(c.get("failed", 0) for c in context.counts.values())
    if failed > counted_failures and active != context.job.total_replicas and limit < 1:
        return True
    restarts = _count_restarts(context)
    return restarts > 0 if limit == 0 else restarts >= limit


def _count_restarts(context: ReconcileContext) -> int:
    return sum(_pod_restarts(pod) for pod in _restartable_pods(context))


def _restartable_pods(context: ReconcileContext) -> list[Object]:
    """Running pods of the replica types whose restartPolicy allows restarts."""
    restartable_labels = {r.label for r in context.job.replicas.values() if r.restart_policy in RESTARTABLE}
    return [
        pod
        for pod in context.observed.pods
        if phase(pod) == "Running" and ((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) in restartable_labels)
    ]


def _container_statuses(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _pod_restarts(pod: Object) -> int:
    return sum(int(c.get("restartCount") or 0) for c in _container_statuses(pod))


def _pod_failures(pod: Object) -> int:
    """The pod's container restarts, plus one if a container has failed and is still to be restarted."""
    return _pod_restarts(pod) + any(_awaits_restart(c.get("state") or {}) for c in _container_statuses(pod))


def _awaits_restart(state: Object) -> bool:
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    return waiting.get("reason") == "CrashLoopBackOff" or bool(terminated.get("exitCode"))
