"""Sets of completion indexes in the format of a Job's status: `0-2,5`. Stored as intervals: a Job may have two billion. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from rowlock.objects import is_digits

_PART = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Indexes:
    """Sorted intervals (first, last), both inclusive; adjacent ones are merged."""

    intervals: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __contains__(self, index: int) -> bool:
        return any(first <= index <= last for first, last in self.intervals)

    def __or__(self, other: Indexes) -> Indexes:
        return _join_touching(sorted(chain(self.intervals, other.intervals)))

    def __str__(self) -> str:
        """The status format: two neighbours are written as `1,2`, three or more as a range."""
        parts = []
        for first, last in self.intervals:
            separator = "," if last == first + 1 else "-"
            parts.append(f"{first}{separator}{last}" if last > first else str(first))
        return ",".join(parts)

    def overlap(self, other: Indexes) -> int:
        """How many indexes are in both."""
        return len(self) + len(other) - len(self | other)

    def lowest_missing(self, count: int, completions: int) -> list[int]:
        """The lowest `count` indexes below `completions` that are not in the set."""
        found: list[int] = []
        candidate = 0
        for first, last in (*self.intervals, (completions, completions)):
            stop = min(first, completions, candidate + count - len(found))
            found.extend(range(candidate, stop))
            candidate = max(candidate, last + 1)
        return found


def _join_touching(ordered: Iterable[tuple[int, int]]) -> Indexes:
    joined: list[tuple[int, int]] = []
    for first, last in ordered:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return Indexes(tuple(joined))


def of_numbers(numbers: Iterable[int]) -> Indexes:
    """The set of some indexes, in any order."""
    return _join_touching((number, number) for number in sorted(set(numbers)))


def parse(text: str, completions: int) -> Indexes:
    """Parse the indexes below `completions` in a status or rule. Malformed parts are skipped, because users may write a status."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first < completions and first <= last:
            found.append((first, min(last, completions - 1)))
    return _join_touching(sorted(found))


def format_problem(text: str, completions: int) -> tuple[int, str]:
    """(number of indexes in a text, what is wrong with it in the API server's words, or "")."""
    total, previous = 0, -1
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            return (
                0,
                f"the fragment \"{part}\" violates the requirement that an index interval can have at most two parts separated by '-'",
            )
        for limit in limits:
            if not is_digits(limit.removeprefix("-")):
                return 0, f'cannot convert string to integer for index: "{limit}"'
            if int(limit) >= completions:
                return 0, f'too large index: "{limit}"'
        first, last = int(limits[0]), int(limits[-1])
        if len(limits) > 1 and first >= last:
            return 0, f"non-increasing order, previous: {first}, current: {last}"
        if first <= previous:
            return 0, f"non-increasing order, previous: {previous}, current: {first}"
        total += last - first + 1
        previous = last
    return total, ""
