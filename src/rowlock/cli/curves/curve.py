"""One curve, from the server or an event file."""

from __future__ import annotations

from typing import NamedTuple

MAX_CURVES = 64
"""The most curves of a run's event files; further names are ignored."""


class PlottedCurve(NamedTuple):
    """One metric of one run: `points` are (x, value), x in units of `axis`; values may be NaN."""

    axis: str
    points: list[tuple[float, float]]
