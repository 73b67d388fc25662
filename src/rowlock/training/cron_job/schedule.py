"""Cron schedules exactly as Kubernetes reads them (`ParseStandard` of robfig/cron 3.0.1): five fields, or `@hourly`, `@every 1h`.

`parse` gives a Schedule, whose `next` is the first second after a time at which the schedule is due. A field is a set of numbers; a day is
due if it fits both day fields where one of them begins with `*`, otherwise if it fits either. Messages are the library's. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from rowlock.training.cron_job.durations import DurationError, parse_nanoseconds
from rowlock.training.cron_job.fields import SPACE, FieldNumbers, ScheduleError, parse_fields
from rowlock.training.cron_job.zones import Zone, ZoneError, load_zone

_YEARS_AHEAD = 5
_DAY = 86_400


class Schedule(Protocol):
    """When something is due; times are seconds since the epoch."""

    def next(self, after: float) -> int | None:
        """The first second later than `after` at which the schedule is due; None if there is none in five years."""
        ...

    def latest(self, after: float, until: float) -> int | None:
        """The last second in (`after`, `until`] at which the schedule is due."""
        ...


_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Step(NamedTuple):
    """How one field of the clock is brought to a number that fits."""

    fits: Callable[[datetime], bool]
    cut: Callable[[datetime], datetime] | None
    """What the clock shows at the start of this month, day or hour; None: `later` cuts by itself."""
    later: Callable[[int], int]
    is_over: Callable[[datetime], bool]
    """Whether a greater field has changed, so that the search starts over."""

    def walk(self, t: int, zone: Zone, *, is_cut: bool) -> tuple[int, bool, bool]:
        """(the second found, whether smaller fields are at their start, whether the search starts over)."""
        while not self.fits(clock := zone.clock(t)):
            if not is_cut and self.cut is not None:
                t = zone.second(self.cut(clock))
            later = self.later(t)
            t, is_cut = later if later > t else t + _DAY, True  # not later: the zone skips the whole day
            if self.is_over(zone.clock(t)):
                return t, is_cut, True
        return t, is_cut, False


def _month_of(clock: datetime) -> datetime:
    return datetime(clock.year, clock.month, 1)


def _day_of(clock: datetime) -> datetime:
    return datetime(clock.year, clock.month, clock.day)


def _hour_of(clock: datetime) -> datetime:
    return datetime(clock.year, clock.month, clock.day, clock.hour)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Five fields, in the time of a zone."""

    minute: FieldNumbers
    hour: FieldNumbers
    day: FieldNumbers
    month: FieldNumbers
    weekday: FieldNumbers
    zone: Zone

    def next(self, after: float) -> int | None:
        """The first due second later than `after`. The search walks as the library's does, from the months to the minutes, so that it finds
        the same where clocks skip or repeat an hour."""
        if not self._has_numbers():
            return None
        start = math.floor(after) + 1
        try:
            return self._search(start, self.zone.clock(start).year + _YEARS_AHEAD)
        except (OverflowError, ValueError):  # beyond the year 9999
            return None

    def _has_numbers(self) -> bool:
        """Whether any time can be due: a field such as `,` has no numbers."""
        has_days = (self.day.numbers, self.weekday.numbers)
        is_starred = self.day.is_starred or self.weekday.is_starred
        days = all(has_days) if is_starred else any(has_days)
        return bool(self.minute.numbers and self.hour.numbers and self.month.numbers and days)

    def _search(self, t: int, last_year: int) -> int | None:
        zone, is_cut = self.zone, False
        steps = (
            _Step(lambda c: c.month in self.month.numbers, _month_of, zone.month_later, lambda c: c.month == 1),
            _Step(self._fits_day, _day_of, zone.day_later, lambda c: c.day == 1),
            _Step(lambda c: c.hour in self.hour.numbers, _hour_of, lambda t: t + 3600, lambda c: c.hour == 0),
            _Step(lambda c: c.minute in self.minute.numbers, None, lambda t: t // 60 * 60 + 60, lambda c: c.minute == 0),
            _Step(lambda c: c.second == 0, None, lambda t: t // 60 * 60 + 60, lambda c: True),
        )  # fmt: skip
        while zone.clock(t).year <= last_year:
            for step in steps:
                t, is_cut, starts_over = step.walk(t, zone, is_cut=is_cut)
                if starts_over:
                    break
            else:
                return t
        return None

    def _fits_day(self, clock: datetime) -> bool:
        fits, fits_week = clock.day in self.day.numbers, clock.isoweekday() % 7 in self.weekday.numbers
        if self.day.is_starred or self.weekday.is_starred:
            return fits and fits_week
        return fits or fits_week

    def latest(self, after: float, until: float) -> int | None:
        """The last due second in (`after`, `until`], by bisection: there may be thousands between."""
        found = self.next(after)
        if found is None or found > until:
            return None
        low, high = math.floor(after), math.floor(until)  # `next(low)` is not later than `until`, `next(high)` is
        while high - low > 1:
            middle = (low + high) // 2
            later = self.next(middle)
            if later is None or later > until:
                high = middle
            else:
                low, found = middle, later
        return found


@dataclass(frozen=True, slots=True)
class EverySchedule:
    """`@every`: so many seconds after the time before, whole seconds only."""

    seconds: int

    def next(self, after: float) -> int | None:
        """So many seconds later."""
        return math.floor(after) + self.seconds

    def latest(self, after: float, until: float) -> int | None:
        """The last of the times that follow `after`."""
        times = (math.floor(until) - math.floor(after)) // self.seconds
        return math.floor(after) + times * self.seconds if times > 0 else None


def parse(text: str, local: Zone) -> Schedule:
    """The schedule of a text. `local`: the zone if the text begins with no `TZ=` or `CRON_TZ=`. Raises ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    zone = local
    if text.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, rest = text.partition(" ")
        called = prefix.partition("=")[2]
        try:
            zone = load_zone(called)
        except ZoneError as error:
            raise ScheduleError(f"provided bad location {called}: {error}") from None
        text = rest.strip(SPACE)
    if text.startswith("@every "):
        return _parse_every(text)
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    minute, hour, day, month, weekday = parse_fields(text)
    return CronSchedule(minute, hour, day, month, weekday, zone)


def _parse_every(text: str) -> EverySchedule:
    try:
        nanoseconds = parse_nanoseconds(text.removeprefix("@every "))
    except DurationError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from None
    return EverySchedule(max(1, nanoseconds // 10**9))
