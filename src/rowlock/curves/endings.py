"""How a run's figures ended, from the end of its log: a loss that became NaN or infinite, or that never changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rowlock.curves.curves import Curve, CurveReader
from rowlock.curves.lines import ENDS_OF_PIECES

MIN_POINTS = 20
"""The fewest equal points for which a loss is reported as unchanged."""
_LOSSES = ("loss", "perplexity", "ppl")


@dataclass(frozen=True, slots=True)
class Point:
    """A figure of one metric: `x` in units of `axis`."""

    metric: str
    axis: str
    x: float
    value: float


def read_text(text: str) -> dict[str, Curve]:
    """Metric → curve, from the text of a log or of its end."""
    reader = CurveReader()
    for piece in ENDS_OF_PIECES.split(text):
        reader.push(piece)
    return reader.curves


def not_finite_since(curves: Mapping[str, Curve]) -> Point | None:
    """The earliest point at which a loss became NaN or infinite and stayed so to the end; None without one."""
    found = []
    for metric, curve in curves.items():
        bad = None
        for x, value in reversed(curve.points if _is_loss(metric) else ()):
            if math.isfinite(value):
                break
            bad = Point(metric, curve.axis, x, value)
        if bad is not None:
            found.append(bad)
    return min(found, key=lambda point: point.x, default=None)


def unchanged_since(curves: Mapping[str, Curve]) -> Point | None:
    """The first point of a training loss that has at least `MIN_POINTS` points, all equal and finite, and not 0; else None."""
    for metric, curve in curves.items():
        values = {value for _, value in curve.points}
        if _is_loss(metric) and not curve.is_evaluation and len(curve.points) >= MIN_POINTS and len(values) == 1:
            (value,) = values
            return Point(metric, curve.axis, curve.points[0][0], value) if value and math.isfinite(value) else None
    return None


def last_place(curves: Mapping[str, Curve]) -> tuple[Point, float] | None:
    """The last point of the training metric that got furthest, and its distance from the point before; None below three points."""
    found = [(c.points[-1][0], metric) for metric, c in curves.items() if not c.is_evaluation and len(c.points) > 2]
    if not found:
        return None
    x, metric = max(found)
    curve = curves[metric]
    return Point(metric, curve.axis, x, curve.points[-1][1]), x - curve.points[-2][0]


def _is_loss(metric: str) -> bool:
    return any(word in metric.lower() for word in _LOSSES)
