"""How long something is, as kubectl's columns say it: `7s`, `2m5s`, `3h`, `12d`. Pure."""

from __future__ import annotations

from rowlock import objects

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


def human(seconds: float) -> str:
    """A duration in at most two units, coarser as it grows."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, unit: int, name: str, smaller: int, second: str) -> str:
    rest = whole % unit // smaller
    return f"{whole // unit}{name}{rest}{second}" if rest else f"{whole // unit}{name}"


def since(text: str | None, now: float, unknown: str = "<unknown>") -> str:
    """How long ago an RFC 3339 time was."""
    return human(now - objects.seconds(text)) if text else unknown
