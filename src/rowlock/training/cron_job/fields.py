"""The five fields of a cron schedule: lists of ranges with steps, as robfig/cron reads them, in its words where it refuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""What Go takes for white space."""
_MAX_INT, _MAX_DIGITS = 2**63 - 1, 19


class ScheduleError(ValueError):
    """A text that is no schedule; the message says why."""


class FieldNumbers(NamedTuple):
    numbers: frozenset[int]
    is_starred: bool
    """Whether a part of it is `*` or `?`, without a step above 1."""


class _Bounds(NamedTuple):
    low: int
    high: int
    names: Mapping[str, int]


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "sun mon tue wed thu fri sat".split()
_MAX_LENGTH = 10_000
_BOUNDS = (
    _Bounds(0, 59, {}),
    _Bounds(0, 23, {}),
    _Bounds(1, 31, {}),
    _Bounds(1, 12, {month: number for number, month in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {day: number for number, day in enumerate(_DAYS)}),
)


def parse_fields(text: str) -> list[FieldNumbers]:
    """Minute, hour, day of the month, month and day of the week. Raises ScheduleError."""
    if len(text) > _MAX_LENGTH:  # a field of 100,000 parts took 0.7 s of each look
        raise ScheduleError(f"a schedule has at most {_MAX_LENGTH} characters, this one {len(text)}")
    words = [word for word in re.split(f"[{SPACE}]", text) if word]
    if len(words) != len(_BOUNDS):
        raise ScheduleError(f"expected exactly {len(_BOUNDS)} fields, found {len(words)}: [{' '.join(words)}]")
    return [_parse_field(*pair) for pair in zip(words, _BOUNDS, strict=True)]


def _parse_field(text: str, bounds: _Bounds) -> FieldNumbers:
    """A comma-separated list of ranges; empty parts count for nothing."""
    parts = [_parse_range(part, bounds) for part in dict.fromkeys(text.split(",")) if part]
    return FieldNumbers(
        frozenset[int]().union(*(part.numbers for part in parts)), any(part.is_starred for part in parts)
    )


def _parse_range(text: str, bounds: _Bounds) -> FieldNumbers:
    """`*`, `5`, `1-5`, each perhaps with `/step`; `5/2` means from 5 to the end."""
    span, *steps = text.split("/")
    first, *others = span.split("-")
    is_starred = first in ("*", "?")
    if is_starred:
        low, high = bounds.low, bounds.high
    else:
        low = high = _parse_number(first, bounds.names)
        if len(others) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if others:
            high = _parse_number(others[0], bounds.names)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _parse_number(steps[0], {}) if steps else 1
    if steps and not others:
        high = bounds.high
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {text}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {text}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return FieldNumbers(frozenset(range(low, high + 1, step)), is_starred and step == 1)


def _parse_number(text: str, names: Mapping[str, int]) -> int:
    """A number or a name, in Go's words where it is neither."""
    if text.lower() in names:
        return names[text.lower()]
    match = re.fullmatch(r"([+-]?)0*([0-9]+)", text, re.ASCII)
    if match is None:
        raise ScheduleError(f"failed to parse int from {text}: {_atoi_error(text, 'invalid syntax')}")
    if len(match[2]) > _MAX_DIGITS or int(match[2]) > _MAX_INT + (match[1] == "-"):
        raise ScheduleError(f"failed to parse int from {text}: {_atoi_error(text, 'value out of range')}")
    number = int(match[1] + match[2])
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


def _atoi_error(text: str, why: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'strconv.Atoi: parsing "{quoted}": {why}'
