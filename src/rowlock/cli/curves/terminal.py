"""Curves in the terminal: braille dots for one run, a letter for each of several. Without colour, so a pipe gets the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rowlock.cli.output import format_number

ROWS = 12
_MIN_COLUMNS, _MAX_COLUMNS = 20, 120
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille character, by row and column of its eight dots."""
Points = Sequence[tuple[float, float]]


def draw_metric(
    name: str, axis: str, curves: Sequence[tuple[str, Points]], width: int, *, braille: bool
) -> Iterator[str]:
    """The lines of one chart, at most `width` columns wide: title, rows, axis, a line for each run. `curves`: label and
    points."""
    finite = [(x, y) for _, points in curves for x, y in points if math.isfinite(y)]
    yield name
    if finite:
        yield from _draw(axis, curves, finite, width, braille=braille and len(curves) == 1)
    for number, (label, points) in enumerate(curves):
        mark = f"{_letter(number)}  " if len(curves) > 1 else ""
        yield f"  {mark}{label}: {describe(points)}"


def describe(points: Points) -> str:
    """A line with the last, least and greatest value, and with the position of the first NaN."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    odd = next((f"{y} at {format_number(x)}" for x, y in points if not math.isfinite(y)), "")
    if not finite:
        return f"no finite value, {odd}"
    low, high = min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])
    said = f"last {points[-1][1]:.6g}, least {low[1]:.6g} at {low[0]:g}, greatest {high[1]:.6g} at {high[0]:g}"
    return f"{said}; {odd}" if odd else said


def tell_apart(values: Sequence[float]) -> list[str]:
    """The labels of an axis: four digits each, or more if different values need them (0.003, 123456 and 123495)."""
    texts: list[str] = []
    largest = max(map(abs, values))
    for digits in range(6 if 1e4 <= largest < 1e6 else 4, 18):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _letter(number: int) -> str:
    return _LETTERS[number % len(_LETTERS)]


def _draw(
    axis: str, curves: Sequence[tuple[str, Points]], finite: Points, width: int, *, braille: bool
) -> Iterator[str]:
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    begin, end = min(x for x, _ in finite), max(x for x, _ in finite)
    middle = (ROWS - 1) // 2
    heights = {0: high, middle: low / 2 + high / 2, ROWS - 1: low} if high > low else {middle: low}
    labels = dict(zip(heights, tell_apart(list(heights.values())), strict=True))
    margin = max(map(len, labels.values()))
    columns = max(_MIN_COLUMNS, min(_MAX_COLUMNS, width - margin - 4))
    across, down = (2, 4) if braille else (1, 1)
    cells: list[list[int]] = [[0] * columns for _ in range(ROWS)]
    letters = [[" "] * columns for _ in range(ROWS)]
    for number, (_, points) in enumerate(curves):
        for x, y in _pixels(points, (begin, end), (low, high), columns * across, ROWS * down):
            cells[y // down][x // across] |= _DOTS[y % down][x % across] if braille else 1
            letters[y // down][x // across] = _letter(number)
    for row in range(ROWS):
        drawn = (
            "".join(chr(0x2800 + cell) if cell else " " for cell in cells[row]) if braille else "".join(letters[row])
        )
        yield f"  {labels.get(row, ''):>{margin}} {'┤' if braille else '|'}{drawn}".rstrip()
    left, right = format_number(begin), format_number(end)
    yield f"  {'':{margin}}  {left}{axis:^{max(1, columns - len(left) - len(right))}}{right}"


def _pixels(
    points: Points, xs: tuple[float, float], ys: tuple[float, float], width: int, height: int
) -> Iterator[tuple[int, int]]:
    """The dots of a curve with neighbours joined; NaN leaves a gap."""
    previous: tuple[int, int] | None = None
    for x, y in points:
        if not math.isfinite(y):
            previous = None
            continue
        place = (_scale(x, xs, width), height - 1 - _scale(y, ys, height))
        if previous is None:
            yield place
        else:
            steps = max(abs(place[0] - previous[0]), abs(place[1] - previous[1]), 1)
            for step in range(1, steps + 1):
                yield tuple(round(a + (b - a) * step / steps) for a, b in zip(previous, place, strict=True))  # type: ignore[misc]
        previous = place


def _scale(value: float, span: tuple[float, float], size: int) -> int:
    """Scale a value to 0 … size - 1. It halves first, because the span of two finite numbers may be infinite."""
    low, high = span[0] / 2, span[1] / 2
    return min(size - 1, int((value / 2 - low) / (high - low) * (size - 1) + 0.5)) if high > low else size // 2
