"""One reconcile of one Job: which pods to create and remove, whether the Job ends, and its status.

Failures are judged first, then the success policy, then plain completion; an ending is final. A pod's end is counted in two steps, so that
a crash between them neither loses it nor counts it twice: first its uid is added to the status and its finalizer removed; the next
reconcile, which no longer finds the finalizer, increments the counter. Pure.
"""

from __future__ import annotations

from rowlock.api import Decision
from rowlock.objects import Object, is_condition_true, phase, seconds
from rowlock.training.batch_job import counting
from rowlock.training.batch_job.look import Look, ObservedJob
from rowlock.training.batch_job.manage import manage_pods
from rowlock.training.batch_job.model import FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, Ending
from rowlock.training.batch_job.pods import has_failed, restart_count
from rowlock.training.batch_job.policies import judge_failure, success_ending

_COMPLETED = Ending(SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods")


def reconcile(observed: ObservedJob, now: float) -> Decision:
    """The writes for a Job that is not finished, and when to look at it again."""
    look = Look(observed, now)
    ending = _decide_ending(look)
    if ending is not None:
        look.delete_active_pods()
    else:
        if not look.job.is_deleting:
            manage_pods(look)
        ending = _completion(look)
        if ending is None and not look.job.is_deleting:
            _note_suspension(look)
    if ending is not None and look.start_time is None:
        look.restart_clock()  # suspended before it got a startTime, and the API refuses an end without one
    counting.count_pods(look, ending)
    return look.decision()


def _decide_ending(look: Look) -> Ending | None:
    """An ending other than plain completion, or None."""
    job = look.job
    return (
        job.ending_so_far()
        or _failure_by_policy(look)
        or _failure_by_limit(look)
        or _failure_by_index(look)
        or (success_ending(job, look.succeeded_indexes) if job.is_indexed else None)
    )


def _failure_by_policy(look: Look) -> Ending | None:
    if look.job.failure_rules is None:
        return None
    failed = (p for p in look.pods if has_failed(p, look.job))
    messages = (judge_failure(p, look.job.failure_rules).message for p in failed)
    message = next(filter(None, messages), "")
    return Ending(FAILURE_TARGET, "PodFailurePolicy", message) if message else None


def _failure_by_limit(look: Look) -> Ending | None:
    job = look.job
    if look.failed > job.backoff_limit or _is_past_restarts(look.pods, look):
        return Ending(FAILURE_TARGET, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    is_resumed_now = is_condition_true(job.object, SUSPENDED)  # its startTime is set anew below
    if job.deadline is None or job.is_suspended or is_resumed_now or look.start_time is None:
        return None
    remaining = seconds(look.start_time) + job.deadline - look.now
    if remaining <= 0:
        return Ending(FAILURE_TARGET, "DeadlineExceeded", "Job was active longer than specified deadline")
    look.look_again(remaining)
    return None


def _is_past_restarts(pods: list[Object], look: Look) -> bool:
    """Whether container restarts of live pods have reached the backoffLimit (restartPolicy OnFailure)."""
    if not look.job.restarts_in_place:
        return False
    restarts = sum(restart_count(p) for p in pods if (phase(p) or "Pending") in ("Running", "Pending"))
    return restarts >= max(look.job.backoff_limit, 1)


def _failure_by_index(look: Look) -> Ending | None:
    """A failure by index: too many failed indexes, or some failed once all indexes have ended."""
    job, failed = look.job, look.failed_indexes
    if failed is None:
        return None
    if job.max_failed_indexes is not None and len(failed) > job.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Ending(FAILURE_TARGET, "MaxFailedIndexesExceeded", message)
    if failed and len(failed) + len(look.succeeded_indexes) >= (job.completions or 0):
        return Ending(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes")
    return None


def _completion(look: Look) -> Ending | None:
    if look.active:
        return None
    wanted = look.job.completions
    is_enough = look.succeeded > 0 if wanted is None else look.succeeded >= wanted
    return _COMPLETED if is_enough else None


def _note_suspension(look: Look) -> None:
    """Update the condition Suspended. A resumed Job gets a new startTime."""
    if look.job.is_suspended:
        if look.set_condition(SUSPENDED, "True", "JobSuspended", "Job suspended"):
            look.record("Normal", "Suspended", "Job suspended")
    elif look.set_condition(SUSPENDED, "False", "JobResumed", "Job resumed"):
        look.record("Normal", "Resumed", "Job resumed")
        look.restart_clock()
