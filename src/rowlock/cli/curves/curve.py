"""One curve, as the server sends it."""

from __future__ import annotations

from typing import NamedTuple


class PlottedCurve(NamedTuple):
    """One metric of one run: `points` are (x, value), x in units of `axis`; values may be NaN."""

    axis: str
    points: list[tuple[float, float]]
