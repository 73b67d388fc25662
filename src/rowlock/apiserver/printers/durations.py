"""How long something is, as kubectl's columns say it: `7s`, `2m5s`, `3h`, `12d`. Pure."""

from __future__ import annotations

from rowlock import objects

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


def human_duration(seconds: float) -> str:
    """A duration in at most two units, coarser as it grows."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(0, total)
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _two_units(total, _MINUTE, "m", 1, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return _two_units(total, _HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _two_units(total, _DAY, "d", _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _two_units(total, _YEAR, "y", _DAY, "d")
    return f"{total // _YEAR}y"


def _two_units(total: int, unit: int, name: str, smaller: int, second: str) -> str:
    rest = total % unit // smaller
    return f"{total // unit}{name}{rest}{second}" if rest else f"{total // unit}{name}"


def time_since(text: str | None, now: float, unknown: str = "<unknown>") -> str:
    """How long ago an RFC 3339 time was."""
    return human_duration(now - objects.seconds(text)) if text else unknown
