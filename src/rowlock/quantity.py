"""Kubernetes quantities (`"100M"`, `"500m"`, `"1Gi"`, `0.1`): parsing and canonical printing.

A quantity is a Decimal here (exact, no floats). The canonical form follows apimachinery: the suffix
family of the input is kept (binary stays binary), mantissa without trailing zeros, no fraction when a smaller suffix
avoids it. Used by admission, the scheduler's snapshot and the tables. Also parses Go's durations, and writes durations as kubectl shows them.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

from rowlock.errors import BadRequest

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII)
MAX_LENGTH = 100
"""The most characters of a quantity, and the largest exponent."""
_LONGEST_DURATION = 1_000
"""The most characters of a duration."""
_MOST_SECONDS = (2**63 - 1) / 1e9
DURATION_PATTERN = re.compile(r"(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+|0")
"""A duration as Go reads it."""
_FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def parse(value: str | int | float) -> Decimal:
    """The exact value of a quantity. Raises BadRequest with apimachinery's own sentence."""
    if isinstance(value, bool):
        raise BadRequest(_FORMAT_ERROR)
    return _parse_text(str(value)[: MAX_LENGTH + 1])


@lru_cache(4096)  # ten thousand pods use the same few quantities
def _parse_text(text: str) -> Decimal:
    match = _PATTERN.fullmatch(text)
    if not match or len(match[0]) > MAX_LENGTH:
        raise BadRequest(_FORMAT_ERROR)
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * (Decimal(1024) ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    exponent = int(suffix[1:])
    if abs(exponent) > MAX_LENGTH:  # its digits could fill the memory
        raise BadRequest(_FORMAT_ERROR)
    with localcontext() as context:
        context.prec = 60
        return number * (Decimal(10) ** exponent)


def canonicalize(value: str | int | float) -> str:
    """The text the real API server stores: `1000m` → `1`, `0.5` → `500m`, `1024Mi` → `1Gi`."""
    text = str(value)
    number = parse(value)
    if any(text.endswith(s) for s in _BINARY):
        return _format_binary(number)
    if re.search(r"\d[eE][+-]?\d+$", text):
        return _format_exponent(number)
    return _format_decimal(number)


def _format_binary(number: Decimal) -> str:
    for suffix, power in reversed(_BINARY.items()):
        scaled = number / (Decimal(1024) ** power)
        if number != 0 and scaled == scaled.to_integral_value():
            return f"{scaled.to_integral_value():f}{suffix}"
    if number == number.to_integral_value():
        return f"{number.to_integral_value():f}"
    return _format_decimal(number)


def _format_decimal(number: Decimal) -> str:
    if number == 0:
        return "0"
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = number.scaleb(-power)
        if scaled == scaled.to_integral_value():
            return f"{scaled.to_integral_value():f}{suffix}"
    # finer than a nano: rounded up, as apimachinery does
    return f"{number.scaleb(9).to_integral_value('ROUND_CEILING'):f}n"


def _format_exponent(number: Decimal) -> str:
    for power in range(18, -10, -3):
        scaled = number.scaleb(-power)
        if number != 0 and scaled == scaled.to_integral_value():
            return f"{scaled.to_integral_value():f}e{power}" if power else f"{scaled.to_integral_value():f}"
    return "0" if number == 0 else _format_decimal(number)


def render(number: Decimal, *, binary: bool = False) -> str:
    """A computed value as a canonical quantity; `binary`: with suffixes such as Gi."""
    return _format_binary(number) if binary else _format_decimal(number)


def is_whole(value: str | int | float) -> bool:
    """Whether the quantity has no fraction. Raises BadRequest."""
    number = parse(value)
    return number == number.to_integral_value()


def millis(value: str | int | float) -> int:
    """The quantity in thousandths, rounded up: CPU requests in millicores. Raises BadRequest."""
    return int((parse(value) * 1000).to_integral_value("ROUND_CEILING"))


def integer_value(value: str | int | float) -> int:
    """The quantity in units, rounded up: bytes of memory, GPUs. Raises BadRequest."""
    return int(parse(value).to_integral_value("ROUND_CEILING"))


def parse_duration(text: Any) -> float | None:
    """A Go duration ("1h30m", "90s", "5m") in seconds; None if it is missing, invalid, or longer than Go can represent (292
    years). Linear time for any text, because it may be untrusted."""
    if len(str(text or "")) > _LONGEST_DURATION or not DURATION_PATTERN.fullmatch(str(text or "")):
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", str(text))  # not the hours of "1d12h"
    if not parts:
        return None
    seconds = sum(float(n) * {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}[u] for n, u in parts)
    return seconds if seconds <= _MOST_SECONDS else None


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
