"""Curves from what a program prints: `step=10 loss=0.31`, JSON lines, the dicts of the Hugging Face Trainer, `Epoch 3/10 loss: 0.3`.

A line counts when it says how far the program is and gives at least one number more. The lines are in the run's log, so the
curves are kept for as long as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

AXES = ("step", "global_step", "train_step", "iteration", "iter", "epoch")
"""Words that say how far a program is; of several in one line the first here is the axis."""
MAX_LINE = 4096
"""Characters of a line that are looked at."""
MAX_POINTS = 20_000
"""Points of a curve; from there on every second one, every fourth one, ... is kept."""
MAX_CURVES = 64
"""Curves of a run; further names are left out."""
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
        """What an attempt did that is done again from here on."""
        self.points = [point for point in self.points if point[0] < x]


def parse_line(line: str) -> tuple[str, float, dict[str, float]] | None:
    """The axis, how far, and the metrics of one line; None where it is no such line."""
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

    An attempt that goes on from a checkpoint takes the place of what is done again. A count that begins anew within an
    attempt (steps of an epoch: it falls below half) goes on where it stood.
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
