"""How long a workload waited and ran, as far as its conditions tell: of one that was restarted, since it ran last."""

from __future__ import annotations

from rowlock import objects
from rowlock.objects import Object


def waiting_seconds(job: Object, now: float) -> int | None:
    """From the job's creation until it ran, ended, or `now`; None for a suspended job, which neither waits nor runs."""
    if _is_suspended(job):
        return None
    return _span(_time_of(objects.meta(job).get("creationTimestamp")), _start_time(job) or _end_time(job) or now)


def running_seconds(job: Object, now: float) -> int | None:
    """Since it ran, until its end or `now`; 0 for one that never ran, None for a suspended one."""
    return None if _is_suspended(job) else _span(_start_time(job), _end_time(job) or now)


def _span(begin: float, end: float) -> int:
    return max(0, int(end - begin)) if begin else 0


def _is_suspended(job: Object) -> bool:
    return bool(objects.dig(job, "spec.runPolicy.suspend", False)) and not _end_time(job)


def _start_time(job: Object) -> float:
    """The operator turns the condition to False when the job ends, and keeps its time."""
    return _time_of((objects.condition(job, "Running") or {}).get("lastTransitionTime"))


def _end_time(job: Object) -> float:
    failed = objects.condition(job, "Failed") or {}
    failure = failed.get("lastTransitionTime") if failed.get("status") == "True" else None
    return _time_of(objects.dig(job, "status.completionTime")) or _time_of(failure)


def _time_of(text: object) -> float:
    """Seconds since the epoch; 0 where there is no time, or none that can be read: anybody may write a status."""
    try:
        return objects.seconds(str(text or ""))
    except ValueError:
        return 0.0
