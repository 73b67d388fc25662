"""Go's durations, as `@every` of a schedule has them: `1h30m`, `90s`, `-5m`. Pure.

`quantity.parse_duration` reads durations that may be missing or wrong; a schedule is refused in the words of Go's package `time`.
"""

from __future__ import annotations

import re

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MOST = 2**63 - 1
"""The most nanoseconds that Go can represent: 292 years."""


class DurationError(ValueError):
    """A text that is no duration; the message is Go's."""


def parse_nanoseconds(text: str) -> int:
    """A duration in nanoseconds, which may be negative. Raises DurationError."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits == "0":
        return 0
    if not digits:
        raise _invalid(text)
    total, at = 0, 0
    while at < len(digits):
        part = _PART.match(digits, at)
        if part is None or not (part[1] or len(part[2] or "") > 1):
            raise _invalid(text)
        if not part[3]:
            raise DurationError(f"time: missing unit in duration {go_quoted(text)}")
        if part[3] not in _UNITS:
            raise DurationError(f"time: unknown unit {go_quoted(part[3])} in duration {go_quoted(text)}")
        unit, fraction = _UNITS[part[3]], (part[2] or ".")[1:][:18]
        total += int((part[1] or "0")[:40]) * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        if total > _MOST:
            raise _invalid(text)
        at = part.end()
    return -total if text[0] == "-" else total


def _invalid(text: str) -> DurationError:
    return DurationError(f"time: invalid duration {go_quoted(text)}")


def go_quoted(text: str) -> str:
    """A text in quotes as Go's package `time` writes it: control characters, and those beyond ASCII, byte by byte."""
    written = (
        f"\\{char}" if char in '"\\' else char if " " <= char < "\x7f" else "".join(f"\\x{b:02x}" for b in char.encode())
        for char in text
    )  # fmt: skip
    return '"' + "".join(written) + '"'
