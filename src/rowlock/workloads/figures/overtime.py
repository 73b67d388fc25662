"""Means over the last day, week and month: Run:ai's `overtimeData`. Pure.

Each range has a fixed number of buckets, however many samples there are: a sample is added to the newest bucket, and the oldest is
dropped. So a mean reaches back to the beginning of a bucket, up to a twenty-fourth beyond its range.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

from rowlock import objects

FIGURES = ("averageGpuAllocation", "averageGpuUtilization", "averageGpuMemoryUtilization")
"""GPUs held; their utilization in percent; the percentage of their memory in use."""
_DAY_S = 86400.0
RANGES = {"range24hData": _DAY_S, "range7dData": 7 * _DAY_S, "range30dData": 30 * _DAY_S}
"""Run:ai's names of the ranges, and their seconds."""
_BUCKETS = 24


class _RangeMeans:
    """The means of one range. A bucket is an array: its begin, then for each figure the count of values and their sum."""

    __slots__ = ("_buckets", "_width")

    def __init__(self, seconds: float) -> None:
        self._width = seconds / _BUCKETS
        self._buckets: deque[array[float]] = deque(maxlen=_BUCKETS + 1)

    def add(self, now: float, values: Sequence[float]) -> None:
        begin = now // self._width * self._width
        if not self._buckets or self._buckets[-1][0] != begin:
            self._buckets.append(array("d", [begin, *([0.0] * 2 * len(values))]))
        bucket = self._buckets[-1]
        for number, value in enumerate(values):
            if not math.isnan(value):
                bucket[1 + 2 * number] += 1
                bucket[2 + 2 * number] += value

    def means(self, now: float) -> list[float | None]:
        oldest = now - self._width * (_BUCKETS + 1)
        kept = [bucket for bucket in self._buckets if oldest < bucket[0] <= now]
        found: list[float | None] = []
        for number in range(len(FIGURES)):
            count = sum(bucket[1 + 2 * number] for bucket in kept)
            total = sum(bucket[2 + 2 * number] for bucket in kept)
            found.append(float(f"{total / count:.4g}") if count else None)
        return found


class OvertimeMeans:
    """The means of one project or department over all ranges."""

    __slots__ = ("_ranges", "_updated")

    def __init__(self) -> None:
        self._ranges = {name: _RangeMeans(seconds) for name, seconds in RANGES.items()}
        self._updated = 0.0

    def add(self, now: float, values: Sequence[float]) -> None:
        """Add a sample: a value for each of `FIGURES`, NaN if not measured."""
        self._updated = now
        for one in self._ranges.values():
            one.add(now, values)

    def to_json(self, now: float) -> dict[str, Any]:
        """Run:ai's `overtimeData`; null for a figure without a sample in the range."""
        updated = objects.timestamp(self._updated) if self._updated else None
        return {
            name: {**dict(zip(FIGURES, one.means(now), strict=True)), "updatedAt": updated}
            for name, one in self._ranges.items()
        }
