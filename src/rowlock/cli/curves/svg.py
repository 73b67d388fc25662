"""Curves as an SVG file: a panel for each metric, a line for each run. It needs no font file, script or network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from rowlock.cli.curves.terminal import Points, tell_apart

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 260, 80, 30, 20, 40
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""The palette of Okabe and Ito, whose colours are distinguishable with any kind of colour blindness."""
_LEGEND_LINE = 16


def to_svg(charts: Sequence[tuple[str, str, Sequence[tuple[str, Points]]]]) -> str:
    """The document. `charts`: name of the metric, name of its axis, and for each run its label and points."""
    parts: list[str] = []
    top = 0
    for name, axis, curves in charts:
        parts += _panel(name, axis, curves, top)
        top += _HEIGHT + _LEGEND_LINE * len(curves)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}"'
    style = ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    return "\n".join((head + style, *parts, "</svg>", ""))


def _panel(name: str, axis: str, curves: Sequence[tuple[str, Points]], top: int) -> Iterator[str]:
    finite = [(x, y) for _, points in curves for x, y in points if math.isfinite(y)] or [(0.0, 0.0)]
    begin, end = min(x for x, _ in finite), max(x for x, _ in finite)
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> str:
        across = (x - begin) / (end - begin) if end > begin else 0.5
        up = (y / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        return f"{_LEFT + across * width:.1f},{top + _TOP + (1 - up) * height:.1f}"

    base = top + _TOP + height
    yield f'<text x="{_LEFT}" y="{top + 20}" font-weight="bold">{escape(name)}</text>'
    yield f'<path d="M{_LEFT} {top + _TOP}V{base}H{_LEFT + width}" fill="none" stroke="#888"/>'
    marks = ((high, top + _TOP + 4), (low, base)) if high > low else ((low, top + _TOP + 4 + height // 2),)
    for text, y in zip(tell_apart([value for value, _ in marks]), [y for _, y in marks], strict=True):
        yield f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{text}</text>'
    for text, x, anchor in (
        (f"{begin:g}", _LEFT, "start"),
        (escape(axis), _LEFT + width // 2, "middle"),
        (f"{end:g}", _LEFT + width, "end"),
    ):
        yield f'<text x="{x}" y="{base + 16}" text-anchor="{anchor}">{text}</text>'
    for number, (label, points) in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        for piece in _pieces(points):
            drawn = " ".join(place(x, y) for x, y in (*piece, piece[-1]))  # repeat the last, so a single point shows
            yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="round"/>'
        y = base + 34 + number * _LEGEND_LINE
        yield f'<text x="{_LEFT}" y="{y}" fill="{colour}">{escape(label)}</text>'


def _pieces(points: Points) -> Iterator[list[tuple[float, float]]]:
    """Split a curve into pieces of finite values; NaN leaves a gap."""
    piece: list[tuple[float, float]] = []
    for x, y in points:
        if math.isfinite(y):
            piece.append((x, y))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece
