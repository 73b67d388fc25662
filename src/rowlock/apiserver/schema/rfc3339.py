"""Times as Go parses and prints them: RFC 3339, in UTC, to the second or to the microsecond. Pure.

A time with an offset is converted to UTC; decimals beyond the type's precision are dropped.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rowlock.errors import BadRequest

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)


@lru_cache(1024)
def normalise_time(text: str) -> str:
    """Normalise a `metav1.Time`. Raises BadRequest."""
    return _parse_time(text).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def normalise_micro_time(text: str) -> str:
    """Normalise a `metav1.MicroTime`, which must have exactly six decimals. Raises BadRequest."""
    return _parse_time(text, decimals=6).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def _parse_time(text: str, *, decimals: int | None = None) -> datetime:
    example = "2006-01-02T15:04:05.000000Z" if decimals else "2006-01-02T15:04:05Z"
    match = _TIME.fullmatch(text)
    if match is None or (decimals is not None and len(match[7] or "") != decimals):
        raise BadRequest(f'parsing time "{text}": not an RFC 3339 time such as {example}')
    numbers = [int(part) for part in match.groups()[:6]]
    offset = (
        timedelta() if match[8] == "Z" else timedelta(hours=int(match[8][:3]), minutes=int(match[8][0] + match[8][4:]))
    )
    try:
        return datetime(*numbers, int(f"{match[7] or '':0<6}"[:6]), tzinfo=UTC) - offset  # type: ignore[arg-type,misc]
    except (ValueError, OverflowError) as error:  # well-formed, but no such day
        raise BadRequest(f'parsing time "{text}": {str(error).partition(" ")[0]} out of range') from None
