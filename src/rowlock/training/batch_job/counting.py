"""Counts ended pods in the Job's status, each exactly once, and finishes the Job once all are counted. Pure."""

from __future__ import annotations

from rowlock.objects import Object, phase, timestamp, uid
from rowlock.training.batch_job import indexes
from rowlock.training.batch_job.look import Look
from rowlock.training.batch_job.model import COMPLETE, Ending
from rowlock.training.batch_job.pods import has_failed, index_of, is_preempted, is_tracked
from rowlock.training.batch_job.policies import judge_failure

MAX_UNCOUNTED = 500
"""Maximum of pods that one reconcile counts, so that the status stays small."""


def count_pods(look: Look, ending: Ending | None) -> None:
    """Add ended pods to the status, and finish the Job if there is an `ending` and nothing is left to count."""
    _add_released(look)
    is_complete = _count_new_ends(look, ending)
    if look.job.is_indexed:
        look.status["succeeded"] = len(look.succeeded_indexes)
        look.status["completedIndexes"] = str(look.known_indexes)
        if not look.status["completedIndexes"]:
            look.status.pop("completedIndexes")
        if look.failed_indexes is not None:
            look.status["failedIndexes"] = str(look.failed_indexes)
    if ending is None:
        return
    look.set_condition(ending.type, "True", ending.reason, ending.message)
    if is_complete and not any(look.uncounted.values()) and not look.terminating:
        _finish(look, ending)


def _add_released(look: Look) -> None:
    """Add pods listed in the status to the counters once their finalizer is removed."""
    tracked = {uid(p) for p in look.pods if is_tracked(p)}
    for field, uids in look.uncounted.items():
        kept = [u for u in uids if u in tracked]
        if len(kept) < len(uids):
            look.status[field] = int(look.status.get(field, 0)) + len(uids) - len(kept)
            look.uncounted[field] = kept


def _count_new_ends(look: Look, ending: Ending | None) -> bool:
    """Add newly ended pods to the status. False if finalizers are still to be removed or pods are left for the next reconcile."""
    new_indexes: list[int] = []
    nothing_left = True
    for pod in sorted(look.pods, key=lambda p: -1 if (i := index_of(p, look.job)) is None else i):
        if not is_tracked(pod) or not _may_release(look, pod, ending):
            continue
        look.release(pod)
        nothing_left = False
        if phase(pod) == "Succeeded" and uid(pod) not in look.uncounted["failed"]:
            index = index_of(pod, look.job)
            if not look.job.is_indexed and uid(pod) not in look.uncounted["succeeded"]:
                look.uncounted["succeeded"].append(uid(pod))
            elif index is not None and index not in look.known_indexes:
                new_indexes.append(index)
        elif _is_counted_failure(look, pod, ending):
            look.uncounted["failed"].append(uid(pod))
        if len(new_indexes) + sum(map(len, look.uncounted.values())) >= MAX_UNCOUNTED:
            break
    look.known_indexes |= indexes.of_numbers(new_indexes)
    return nothing_left


def _may_release(look: Look, pod: Object, ending: Ending | None) -> bool:
    """Whether the pod's finalizer may be removed. The failed pod of an index is kept until it is replaced, because its annotations count
    the index's failures."""
    if look.job.is_deleting or ending is not None or phase(pod) == "Succeeded" or is_preempted(pod):
        return True
    if not has_failed(pod, look.job):
        return False
    index = index_of(pod, look.job)
    delayed = look.delayed_pods.get(index) if index is not None else None
    return delayed is None or uid(delayed) != uid(pod)


def _is_counted_failure(look: Look, pod: Object, ending: Ending | None) -> bool:
    """Whether the pod counts as failed. When a Job fails, each pod that has not ended counts, too."""
    fails = has_failed(pod, look.job) or (ending is not None and not ending.is_success and not is_preempted(pod))
    if not fails or uid(pod) in look.uncounted["failed"]:
        return False
    if look.job.is_indexed and index_of(pod, look.job) is None:
        return False
    return judge_failure(pod, look.job.failure_rules).is_counted


def _finish(look: Look, ending: Ending) -> None:
    look.set_condition(ending.final_type, "True", ending.reason, ending.message)
    if ending.final_type == COMPLETE:
        look.status["completionTime"] = timestamp(look.now)
        wanted = look.job.completions
        if wanted is not None and int(look.status.get("succeeded", 0)) > wanted:
            text = "Too many succeeded pods running after completion count reached"
            look.record("Warning", "TooManySucceededPods", text)
        look.record("Normal", "Completed", "Job completed")
    else:
        look.record("Warning", ending.reason, ending.message)
