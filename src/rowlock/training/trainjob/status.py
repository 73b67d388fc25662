"""The status of a TrainJob: conditions and job counts from its JobSet, and its own deadline."""

from __future__ import annotations

from typing import Any

from rowlock.objects import Object, condition, dig, is_condition_true, meta, seconds, timestamp
from rowlock.training.trainjob.jobset import is_suspended

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
DEADLINE_REASON = "DeadlineExceeded"

Json = dict[str, Any]


def is_finished(trainjob: Object) -> bool:
    return is_condition_true(trainjob, COMPLETE) or is_condition_true(trainjob, FAILED)


def is_overdue(trainjob: Object) -> bool:
    """Whether the TrainJob has failed by its deadline."""
    return is_condition_true(trainjob, FAILED) and (condition(trainjob, FAILED) or {}).get("reason") == DEADLINE_REASON


def time_left(trainjob: Object, now: float) -> float | None:
    """Seconds until the deadline, which counts from the creation or the last resume; None without one, or while suspended."""
    limit = dig(trainjob, "spec.activeDeadlineSeconds", None)
    if limit is None or is_suspended(trainjob):
        return None
    if is_condition_true(trainjob, SUSPENDED):  # it is resumed in this turn
        return float(limit)
    resumed = condition(trainjob, SUSPENDED) or {}
    began = resumed.get("lastTransitionTime") if resumed.get("status") == "False" else None
    return float(seconds(began or meta(trainjob).get("creationTimestamp")) + limit - now)


def overdue_status(trainjob: Object, now: float) -> Json:
    """The status of a TrainJob whose deadline has passed."""
    status = dict(trainjob.get("status") or {})
    _set(status, _condition(FAILED, DEADLINE_REASON, "TrainJob exceeded its active deadline", timestamp(now)))
    return status


def next_status(trainjob: Object, jobset: Object | None, now: float) -> Json:
    """The next status, from the spec and the JobSet's status."""
    status = dict(trainjob.get("status") or {})
    if is_suspended(trainjob):
        _set(status, _condition(SUSPENDED, "Suspended", "TrainJob is suspended", timestamp(now)))
    elif is_condition_true(trainjob, SUSPENDED):
        _set(status, _condition(SUSPENDED, "Resumed", "TrainJob is resumed", timestamp(now), is_true=False))
    if jobset is None:
        return status
    for theirs, ours in (("Completed", COMPLETE), ("Failed", FAILED)):
        ended = condition(jobset, theirs)
        if ended is not None and ended.get("status") == "True":
            _set(status, _condition(ours, ended["reason"], ended["message"], ended["lastTransitionTime"]))
    if counts := dig(jobset, "status.replicatedJobsStatus", None):
        status["jobsStatus"] = counts
    return status


def _set(status: Json, changed: Json) -> None:
    """Add or replace a condition; its lastTransitionTime is kept if its status is unchanged."""
    conditions = list(status.get("conditions") or ())
    places = [n for n, one in enumerate(conditions) if one["type"] == changed["type"]]
    if not places:
        conditions.append(changed)
    else:
        before = conditions[places[0]]
        is_same = before["status"] == changed["status"]
        conditions[places[0]] = {**changed, "lastTransitionTime": before["lastTransitionTime"]} if is_same else changed
    status["conditions"] = conditions


def _condition(type_: str, reason: str, message: str, moment: str, *, is_true: bool = True) -> Json:
    return {"type": type_, "status": str(is_true), "reason": reason, "message": message, "lastTransitionTime": moment}
