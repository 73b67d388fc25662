"""Durations as in kubectl's columns: `7s`, `2m5s`, `3h`, `12d`. Pure."""

from __future__ import annotations

from rowlock import objects

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


_STEPS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""(limit in seconds, unit, its name, unit of the remainder (0 = not shown), its name); durations below the limit use the row."""


def human_duration(seconds: float) -> str:
    """A duration in at most two units, coarser as it grows: `HumanDuration` of k8s.io/apimachinery/pkg/util/duration."""
    if seconds <= -2:
        return "<invalid>"
    total = max(0, int(seconds))
    for limit, unit, name, smaller, rest_name in _STEPS:
        if total < limit:
            rest = total % unit // smaller if smaller else 0
            return f"{total // unit}{name}" + (f"{rest}{rest_name}" if rest else "")
    return f"{total // _YEAR}y"


def time_since(text: str | None, now: float, unknown: str = "<unknown>") -> str:
    """The time since an RFC 3339 time, as a human duration; `unknown` when `text` is empty."""
    return human_duration(now - objects.seconds(text)) if text else unknown
