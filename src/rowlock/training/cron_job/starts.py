"""Which start of a CronJob is due now, and when to look again. Pure.

Starts that were missed (the server was down, the CronJob was suspended) are not made up for one by one: only the last of them counts. The count
of missed ones is the real controller's estimate, from the distance between the first two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rowlock.training.cron_job.fields import ScheduleError
from rowlock.training.cron_job.schedule import Schedule

MANY = 100
"""More missed starts than this are told in an event."""
_NEVER_DUE = "time difference between two schedules is less than 1 second"
"""The real controller's words for a schedule that is never due."""
_LATE_LOOK = 0.1
"""Seconds after a start at which to look, so that a clock that is a little behind has reached it."""


@dataclass(frozen=True, slots=True)
class DueStart:
    """The last start that is due but was not made."""

    time: int
    """Seconds since the epoch."""
    missed: int
    """How many starts before and with this one were not made, roughly."""


def due_start(schedule: Schedule, since: float, now: float, window: float = math.inf) -> DueStart | None:
    """The last start in (`since`, `now`]; those that are more than `window` seconds ago do not count as missed. Raises ScheduleError if the
    schedule is never due."""
    first = schedule.next(since)
    if first is None:
        raise ScheduleError(_NEVER_DUE)
    if first > now:
        return None
    second = schedule.next(first)
    if second is None or second > now:
        return DueStart(first, 1)
    last = schedule.latest(first, now) or first
    return DueStart(last, math.floor(min(now - first, window)) // (second - first) + 1)


def seconds_until_next(schedule: Schedule, now: float) -> float | None:
    """Seconds until just after the next start; None if there is none in five years."""
    coming = schedule.next(now)
    return None if coming is None else coming + _LATE_LOOK - now
