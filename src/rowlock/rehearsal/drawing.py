"""A story as an SVG: GPUs held over time, stacked by project, and below it the length of the queue.

Written by hand in plain text, without a drawing library: it opens in every browser and diffs in a review.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from rowlock.rehearsal.engine import Point, Story, capacity
from rowlock.rehearsal.figures import span
from rowlock.scheduling.amounts import WHOLE

WIDTH, LEFT, RIGHT = 960, 72, 150
TOP, TALL, GAP, LOW = 56, 280, 44, 110
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994455", "#997700", "#004488")
SLICES = 480
"""Moments that are drawn: what lies between is averaged."""
MOST_SHOWN = 10
"""Projects with a colour of their own; the rest is one band."""


def sliced(points: Sequence[Point], begin: float, end: float, value: Callable[[Point], float]) -> list[float]:
    """The mean of a value in each of `SLICES` equal spans of time."""
    width = (end - begin) / SLICES or 1.0
    sums = [0.0] * SLICES
    for i, p in enumerate(points):
        start, stop = max(p.at, begin), min(points[i + 1].at if i + 1 < len(points) else end, end)
        at = min(SLICES - 1, int((start - begin) / width))
        while start < stop and at < SLICES:
            edge = begin + (at + 1) * width if at + 1 < SLICES else end
            part = min(stop, edge) - start
            sums[at] += value(p) * part
            start += part
            at += 1
    return [s / width for s in sums]


def svg(story: Story, title: str) -> str:
    """The picture as text."""
    begin = story.points[0].at if story.points else 0.0
    end = max(story.end, begin + 1.0)
    bands = _bands(story)
    top = capacity(story.machines) / WHOLE
    queue = sliced(story.points, begin, end, lambda p: float(p.waiting))
    most = max(4.0, 4.0 * math.ceil(max(queue, default=1.0) / 4))
    inner = WIDTH - LEFT - RIGHT
    below = TOP + TALL + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {below + LOW + 40}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT}" y="40" fill="#666">simulated · GPUs held, by project</text>',
        *_axis(TOP, TALL, top, "GPUs"),
    ]
    floor = [0.0] * SLICES
    for at, (name, values) in enumerate(_drawn(story, bands, begin, end)):
        roof = [f + v for f, v in zip(floor, values, strict=True)]
        colour = COLOURS[at % len(COLOURS)]
        parts.append(
            f'<path d="{_area(floor, roof, TOP, TALL, top)}" fill="{colour}"><title>{escape(name)}</title></path>'
        )
        parts.append(f'<rect x="{LEFT + inner + 12}" y="{TOP + at * 18}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + inner + 28}" y="{TOP + 10 + at * 18}">{escape(name[:18])}</text>')
        floor = roof
    parts.append(f'<text x="{LEFT}" y="{below - 8}" fill="#666">jobs that wait</text>')
    parts += _axis(below, LOW, most, "jobs")
    parts.append(f'<path d="{_area([0.0] * SLICES, queue, below, LOW, most)}" fill="#888"/>')
    for i in range(7):
        x = LEFT + inner * i / 6
        parts.append(
            f'<text x="{x:.0f}" y="{below + LOW + 18}" text-anchor="middle">{span((end - begin) * i / 6)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _bands(story: Story) -> list[tuple[str, tuple[int, ...]]]:
    """(name, positions in a point): the projects that held most, and the others together."""
    held = [sum(p.held[i] for p in story.points) for i in range(len(story.projects))]
    order = sorted(range(len(held)), key=lambda i: (-held[i], i))
    own = order[: MOST_SHOWN if len(order) <= MOST_SHOWN else MOST_SHOWN - 1]
    bands: list[tuple[str, tuple[int, ...]]] = [(story.projects[i].name, (i,)) for i in sorted(own)]
    rest = tuple(i for i in order if i not in own)
    return [*bands, (f"{len(rest)} others", rest)] if rest else bands


def _drawn(
    story: Story, bands: Sequence[tuple[str, tuple[int, ...]]], begin: float, end: float
) -> list[tuple[str, list[float]]]:
    def held(which: tuple[int, ...]) -> Callable[[Point], float]:
        return lambda p: sum(p.held[i] for i in which) / WHOLE

    return [(name, sliced(story.points, begin, end, held(which))) for name, which in bands]


def _area(floor: Sequence[float], roof: Sequence[float], top: float, tall: float, most: float) -> str:
    step = (WIDTH - LEFT - RIGHT) / SLICES

    def line(values: Sequence[float]) -> list[str]:
        found = []
        for i, v in enumerate(values):
            y = top + tall - tall * v / most
            found += [f"{LEFT + i * step:.1f},{y:.1f}", f"{LEFT + (i + 1) * step:.1f},{y:.1f}"]
        return found

    return "M" + " L".join([*line(roof), *reversed(line(floor))]) + "Z"


def _axis(top: float, tall: float, most: float, unit: str) -> list[str]:
    inner = WIDTH - LEFT - RIGHT
    found = []
    for i in range(5):
        value = most * i / 4
        y = top + tall - tall * i / 4
        found.append(f'<line x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        label = f"{value:g} {unit}" if i == 4 else f"{value:g}"
        found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return found
