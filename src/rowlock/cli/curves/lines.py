"""Curves from what a program prints: `step=10 loss=0.31`, JSON lines, the dicts of the Hugging Face Trainer, `Epoch 3/10 loss: 0.3`.

A line counts when it contains a position (a step or an epoch) and at least one more number. The lines are read from the
run's log, so curves last as long as the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

AXES = ("step", "global_step", "train_step", "iteration", "iter", "epoch")
"""Names of positions; if a line has several, the one that comes first in this list is the x axis."""
MAX_LINE = 4096
"""Characters of a line that are parsed at most."""
MAX_POINTS = 20_000
"""Points of a curve at most; beyond that every second point is dropped, again and again."""
MAX_CURVES = 64
"""Curves of a run at most; further names are left out."""
_NOT_METRICS = frozenset((*AXES, "rank", "local_rank", "world_size", "pid", "port", "seed", "total", "max_steps"))
_PAIR = re.compile(
    r"""(?<![\w./-])([A-Za-z_][\w./-]{0,63})['"]?\s{0,3}[=:]\s{0,3}['"]?"""
    r"([-+]?(?:\d{1,40}\.?\d{0,40}(?:e[-+]?\d{1,4})?|\.\d{1,40}|nan|inf(?:inity)?))(?![\w:%]|\.\w)",
    re.IGNORECASE | re.ASCII,
)
_COUNTED = re.compile(r"\b(step|iter|iteration|epoch)\s{1,3}#?\[?(\d{1,18})\b(?!\.)", re.IGNORECASE | re.ASCII)
"""`Step 10`, `Epoch [3/10]`."""


@dataclass(slots=True)
class Curve:
    """One metric of one run: `points` are (x, value), x in units of `axis`; values may be NaN."""

    axis: str
    points: list[tuple[float, float]] = field(default_factory=list)
    _stride: int = 1
    _seen: int = 0

    def add(self, x: float, value: float) -> None:
        self._seen += 1
        if self._seen % self._stride and self._stride > 1:
            return
        self.points.append((x, value))
        if len(self.points) > MAX_POINTS:
            del self.points[1::2]
            self._stride *= 2

    def cut(self, x: float) -> None:
        """Remove the points at and after `x`: a later attempt does them again."""
        self.points = [point for point in self.points if point[0] < x]


def parse_line(line: str) -> tuple[str, float, dict[str, float]] | None:
    """(name of the x axis, position, metric → value) of one line; None when the line has no curve points."""
    pairs: dict[str, float] = {}
    for name, number in _PAIR.findall(line[:MAX_LINE]):
        pairs.setdefault(name, float(number))
    counts = {name.lower(): value for name, value in pairs.items() if name.lower() in AXES}
    for name, number in _COUNTED.findall(line[:MAX_LINE]):
        counts.setdefault(name.lower(), float(number))
    axis = next((axis for axis in AXES if axis in counts and abs(counts[axis]) < 1e18), None)
    metrics = {name: value for name, value in pairs.items() if name.lower() not in _NOT_METRICS}
    return (axis, counts[axis], metrics) if axis is not None and metrics else None


def read_curves(attempts: Iterable[Iterable[str]]) -> dict[str, Curve]:
    """The curves of a run by name, from the lines of its attempts, the oldest first.

    An attempt that resumes from a checkpoint replaces the points that it repeats. A counter that starts again within an
    attempt (steps of an epoch: it falls below half) is continued from its last value.
    """
    curves: dict[str, Curve] = {}
    for lines in attempts:
        last: dict[str, float] = {}
        base: dict[str, float] = {}
        for line in lines:
            if (found := parse_line(line)) is None:
                continue
            axis, count, metrics = found
            if axis not in last:
                for curve in curves.values():
                    if curve.axis == axis:
                        curve.cut(count)
            elif count < (last[axis] - base.get(axis, 0.0)) / 2:
                base[axis] = last[axis]
            last[axis] = x = count + base.get(axis, 0.0)
            for name, value in metrics.items():
                if name in curves or len(curves) < MAX_CURVES:
                    curve = curves.setdefault(name, Curve(axis))
                    if curve.axis == axis:
                        curve.add(x, value)
    return curves
