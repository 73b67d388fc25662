"""Times as Go reads and writes them: RFC 3339, in UTC, to the second or to the microsecond. Pure.

A time with an offset is the same moment in UTC; decimals of a second that the type does not hold are dropped. What
cannot be read is refused with Go's own sentence, which names the part of the layout that was expected.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rowlock.errors import BadRequest

_LAYOUT = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d?"),
    (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)  # fmt: skip
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_TO_SECONDS = (*_LAYOUT, ("", r"([.,]\d+)?"), _ZONE)
_TO_MICROSECONDS = (*_LAYOUT, (".000000", r"[.,]\d{6}"), _ZONE)


@lru_cache(1024)
def normalise_time(text: str) -> str:
    """`metav1.Time`. Raises BadRequest."""
    return _parse_time(text, _TO_SECONDS).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def normalise_micro_time(text: str) -> str:
    """`metav1.MicroTime`: six decimals, no more and no fewer. Raises BadRequest."""
    return _parse_time(text, _TO_MICROSECONDS).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def _parse_time(text: str, layout: tuple[tuple[str, str], ...]) -> datetime:
    rest, parts = text, []
    for element, pattern in layout:
        match = re.match(pattern, rest)
        if match is None:
            layout_text = "2006-01-02T15:04:05Z07:00" if layout is _TO_SECONDS else "2006-01-02T15:04:05.000000Z07:00"
            raise BadRequest(f'parsing time "{text}" as "{layout_text}": cannot parse "{rest}" as "{element}"')
        parts.append(match[0])
        rest = rest[match.end() :]
    if rest:
        raise BadRequest(f'parsing time "{text}": extra text: "{rest}"')
    numbers = [int(part) for part in parts[:11] if part.isdigit()]
    try:
        moment = datetime(*numbers, int(f"{parts[11][1:7]:0<6}"), tzinfo=UTC)  # type: ignore[arg-type,misc]
        return moment - _parse_offset(parts[12])
    except (ValueError, OverflowError) as error:  # digits where they belong, but no such day
        raise BadRequest(f'parsing time "{text}": {str(error).partition(" ")[0]} out of range') from None


def _parse_offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    return timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[4:]))
