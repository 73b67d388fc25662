"""A pod's usage over time: the samples of its node, recent ones unchanged, older ones merged. Pure.

A series takes the same memory however long its pod runs. Values are floats; NaN means not measured.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

NOT_MEASURED = math.nan
_RECENT = 150
"""Most samples kept unmerged."""
_WHOLE = 360
"""Most points over the pod's whole life; at this number, neighbours are merged in pairs."""
IDLE_CORES, IDLE_PERCENT = 0.05, 0.5
"""A pod is idle if it uses less than this of its GPUs; if these are not measured, of its CPUs."""


class UsageSample(NamedTuple):
    """A pod's usage, averaged since the previous sample."""

    cpu_cores: float = NOT_MEASURED
    memory_bytes: float = NOT_MEASURED
    disk_read: float = NOT_MEASURED
    """Bytes per second, as are the next three."""
    disk_write: float = NOT_MEASURED
    net_receive: float = NOT_MEASURED
    net_transmit: float = NOT_MEASURED
    gpu_utilization: float = NOT_MEASURED
    """Percent, the mean over its GPUs."""
    gpu_memory_bytes: float = NOT_MEASURED


FIELDS = UsageSample._fields


class _Points:
    """Sorted times, each with a sample that covers the interval since the previous time."""

    __slots__ = ("columns", "times")

    def __init__(self) -> None:
        self.times = array("d")
        self.columns = tuple(array("f") for _ in FIELDS)

    def add(self, time: float, sample: Sequence[float]) -> None:
        self.times.append(time)
        for column, value in zip(self.columns, sample, strict=True):
            column.append(value)

    def merge_neighbours(self) -> None:
        count = len(self.times) // 2 * 2
        rest = [column[count:] for column in (self.times, *self.columns)]
        self.times = self.times[1:count:2] + rest[0]
        self.columns = tuple(
            array("f", map(_mean_of_two, column[0:count:2], column[1:count:2])) + last
            for column, last in zip(self.columns, rest[1:], strict=True)
        )

    def drop_first(self) -> None:
        del self.times[0]
        for column in self.columns:
            del column[0]

    def copy(self) -> _Points:
        copied = _Points()
        copied.times, copied.columns = self.times[:], tuple(column[:] for column in self.columns)
        return copied


def _mean_of_two(one: float, other: float) -> float:
    if math.isnan(one) or math.isnan(other):
        return other if math.isnan(one) else one
    return (one + other) / 2


class UsageSeries:
    """One pod's samples since `start` (Unix seconds)."""

    __slots__ = ("_merged", "_pending", "_recent", "_step", "_whole", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self._recent, self._whole = _Points(), _Points()
        self._pending, self._step = _Points(), 1
        """Samples of the next point of `_whole`, and the number of samples per point."""

    @property
    def last(self) -> tuple[float, UsageSample] | None:
        """The time of the newest sample, and the sample; None if there is none."""
        if not self._recent.times:
            return None
        return self._recent.times[-1], UsageSample(*(column[-1] for column in self._recent.columns))

    def add(self, time: float, sample: UsageSample) -> None:
        self._recent.add(time, sample)
        if len(self._recent.times) > _RECENT:
            self._recent.drop_first()
        self._pending.add(time, sample)
        if len(self._pending.times) >= self._step:
            self._close_point()

    def _close_point(self) -> None:
        values = [mean_of(column) for column in self._pending.columns]
        self._whole.add(self._pending.times[-1], values)
        self._pending = _Points()
        if len(self._whole.times) >= _WHOLE:
            self._whole.merge_neighbours()
            self._step *= 2

    def copy(self) -> UsageSeries:
        """A copy for use in another thread."""
        copied = UsageSeries(self.start)
        copied._recent, copied._whole, copied._pending = self._recent.copy(), self._whole.copy(), self._pending.copy()
        copied._step = self._step
        return copied

    def averages(self, field: str, times: Sequence[float]) -> list[float | None]:
        """The mean usage between each of these sorted times and the one before; for an interval without samples, the value of the
        sample that covers it. None if there is no sample."""
        begins = [2 * times[0] - times[1] if len(times) > 1 else times[0], *times[:-1]] if times else []
        windows = zip(begins, times, strict=True)
        return [self._average(FIELDS.index(field), begin, end) for begin, end in windows]

    def _average(self, number: int, begin: float, end: float) -> float | None:
        has_recent = bool(self._recent.times) and (begin >= self._recent.times[0] or not self._whole.times)
        points = self._recent if has_recent else self._whole
        first, last = bisect_right(points.times, begin), bisect_right(points.times, end)
        if first == last:  # no sample in between: use the one that covers `end`
            first = bisect_left(points.times, end)
            if end < self.start or first == len(points.times):
                return None
            last = first + 1
        value = mean_of(points.columns[number][first:last])
        return None if math.isnan(value) else value

    # ------------------------------------------------------------ archive

    def to_json(self) -> dict[str, Any]:
        """The pod's whole life, including the incomplete last point, for `from_json`. NaN becomes null."""
        whole = self._whole.copy()
        if self._pending.times:
            whole.add(self._pending.times[-1], [mean_of(column) for column in self._pending.columns])
        columns = {
            name: [None if math.isnan(value) else float(f"{value:.6g}") for value in column]
            for name, column in zip(FIELDS, whole.columns, strict=True)
            if not all(map(math.isnan, column))
        }
        return {"start": self.start, "times": [round(time, 3) for time in whole.times], "columns": columns}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> UsageSeries:
        """Restore a series from `to_json`. Raises KeyError, ValueError or TypeError for other input."""
        series = cls(float(body["start"]))
        times, columns = [float(time) for time in body["times"]], body["columns"]
        series._whole.times = array("d", times)
        series._whole.columns = tuple(
            array("f", [math.nan if value is None else value for value in columns.get(name) or [None] * len(times)])
            for name in FIELDS
        )
        if any(len(column) != len(times) for column in series._whole.columns):
            raise ValueError("columns of different lengths")
        return series


def mean_of(values: Sequence[float]) -> float:
    """The mean of the measured values; NaN if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else NOT_MEASURED


class LatestUsage(NamedTuple):
    """A pod's latest usage."""

    time: float
    sample: UsageSample
    idle_since: float | None
    """Since when its GPUs (without GPUs, its CPUs) have been idle, in Unix seconds; None while busy."""
    cpu_seconds: float
    """Total since the pod began, as are the next four, which are in bytes."""
    disk_read_bytes: float
    disk_write_bytes: float
    net_receive_bytes: float
    net_transmit_bytes: float
    gpus: Mapping[str, tuple[float, float]]
    """GPU id → (utilization in percent, memory in bytes)."""
    gpu_idle_since: Mapping[str, float] = MappingProxyType({})
    """GPU id → since when it has been idle (Unix seconds); only idle GPUs."""


class PodUsageSource(Protocol):
    """Provides the usage of pods by their uid."""

    def series(self, pod_uid: str) -> UsageSeries | None: ...

    def latest(self, pod_uid: str) -> LatestUsage | None: ...
