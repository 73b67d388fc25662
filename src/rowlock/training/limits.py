"""Two limits that fail a whole job: backoffLimit and activeDeadlineSeconds.

What backoffLimit counts is in-place restarts of containers in running pods, summed over the job; with 0, a failed
pod too. It is not what its name promises (Q2), and it is what the operator does.
"""

from __future__ import annotations

from rowlock.objects import Object, phase, seconds
from rowlock.training.framework import TYPE_LABEL
from rowlock.training.trouble import is_active
from rowlock.training.turn import Turn

RESTARTABLE = ("OnFailure", "Always", "ExitCode")


def exceeded(turn: Turn) -> str:
    """Why the job must fail now; "" while it may go on."""
    if _too_many_restarts(turn):
        return f"Job {turn.job.name} has failed because it has reached the specified backoff limit"
    left = time_left(turn)
    if left is not None and left <= 0:
        return f"Job {turn.job.name} has failed because it was active longer than specified deadline"
    return ""


def time_left(turn: Turn) -> float | None:
    """Seconds until the deadline; None where there is none or the job has not started."""
    if turn.job.policy.deadline is None or turn.start is None:
        return None
    return seconds(turn.start) + turn.job.policy.deadline - turn.now


def _too_many_restarts(turn: Turn) -> bool:
    limit = turn.job.policy.backoff
    if limit is None:
        return False
    failed = sum(phase(p) == "Failed" for p in turn.seen.pods)
    active = sum(is_active(p) for p in turn.seen.pods)
    known = sum(c.get("failed", 0) for c in turn.counts.values())
    if failed > known and active != turn.job.total and limit < 1:
        return True
    restarts = _restarts(turn)
    return restarts > 0 if limit == 0 else restarts >= limit


def _restarts(turn: Turn) -> int:
    counted = {r.label for r in turn.job.replicas.values() if r.restart_policy in RESTARTABLE}
    return sum(
        _restarts_of(pod)
        for pod in turn.seen.pods
        if phase(pod) == "Running" and ((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) in counted)
    )


def _restarts_of(pod: Object) -> int:
    status = pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return sum(int(c.get("restartCount") or 0) for c in every)
