"""Time zones as Go computes with them: the clock at a second, and the second of a clock. Pure, on the machine's table of zones.

Where a clock shows an hour twice, or skips it, Go's `time.Date` chooses one of the two offsets, and so does `Zone.second`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_EPOCH = datetime(1970, 1, 1)


class ZoneError(ValueError):
    """A name that is no time zone; the message is Go's."""


class Zone(NamedTuple):
    """A time zone."""

    info: tzinfo

    def clock(self, t: int) -> datetime:
        """What the clock shows at a second. Raises OverflowError beyond the year 9999."""
        return (_EPOCH + timedelta(seconds=t)).astimezone(self.info)

    def second(self, shown: datetime) -> int:
        """The second at which the clock shows this."""
        t = int((shown.replace(tzinfo=None) - _PLAIN_EPOCH).total_seconds())
        offset = self._offset(t)
        return t - (self._offset(t - offset) if offset else 0)

    def month_later(self, t: int) -> int:
        """The second at which the clock shows the same a month later. A 31st becomes the first of the month after a shorter one."""
        clock = self.clock(t).replace(tzinfo=None)
        year, month = (clock.year + 1, 1) if clock.month == 12 else (clock.year, clock.month + 1)
        return self.second(clock.replace(year=year, month=month, day=1) + timedelta(days=clock.day - 1))

    def day_later(self, t: int) -> int:
        """The midnight of the next day, or an hour beside it where the clock skips that; `t` is about midnight, too."""
        t = self.second(self.clock(t).replace(tzinfo=None) + timedelta(days=1))
        hour = self.clock(t).hour
        return t + 3600 * (24 - hour if hour > 12 else -hour)

    def _offset(self, t: int) -> int:
        offset = self.clock(t).utcoffset()
        return int(offset.total_seconds()) if offset else 0


UTC_ZONE = Zone(UTC)


@lru_cache(512)
def load_zone(name: str) -> Zone:
    """The zone of a name, of the machine's table. Raises ZoneError."""
    if name in ("", "UTC"):
        return UTC_ZONE
    if ".." in name or name[0] in "/\\":
        raise ZoneError("time: invalid location name")
    try:
        return Zone(ZoneInfo(name))
    except (OSError, ValueError, KeyError):  # no such file, a folder, or a file that is no zone
        raise ZoneError(f"unknown time zone {name}") from None
