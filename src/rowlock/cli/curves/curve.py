"""One curve, as the server or an event file gives it."""

from __future__ import annotations

from typing import NamedTuple

MAX_CURVES = 64
"""Curves of a run's event files at most; further names are left out."""


class PlottedCurve(NamedTuple):
    """One metric of one run: `points` are (x, value), x in units of `axis`; values may be NaN."""

    axis: str
    points: list[tuple[float, float]]
