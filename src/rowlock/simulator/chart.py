"""A simulation's result as an SVG: GPUs held over time, stacked by project, and below it the number of waiting jobs.

Written by hand in plain text, without a drawing library: it opens in every browser and diffs in a review.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.simulator.engine import SimulationResult, UsagePoint, gpu_capacity
from rowlock.simulator.metrics import format_seconds

WIDTH, LEFT_MARGIN, RIGHT_MARGIN = 960, 72, 150
TOP_MARGIN, CHART_HEIGHT, GAP, QUEUE_CHART_HEIGHT = 56, 280, 44, 110
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994455", "#997700", "#004488")
TIME_SLICES = 480
"""Number of points on the time axis; each is the mean of its time span."""
MAX_PROJECTS = 10
"""Maximum of bands: beyond it the smaller projects share one."""


def slice_means(
    points: Sequence[UsagePoint], begin: float, end: float, value: Callable[[UsagePoint], float]
) -> list[float]:
    """The mean of a value in each of `TIME_SLICES` equal spans of time."""
    width = (end - begin) / TIME_SLICES or 1.0
    sums = [0.0] * TIME_SLICES
    for i, p in enumerate(points):
        start, stop = max(p.at, begin), min(points[i + 1].at if i + 1 < len(points) else end, end)
        at = min(TIME_SLICES - 1, int((start - begin) / width))
        while start < stop and at < TIME_SLICES:
            edge = begin + (at + 1) * width if at + 1 < TIME_SLICES else end
            part = min(stop, edge) - start
            sums[at] += value(p) * part
            start += part
            at += 1
    return [s / width for s in sums]


def render_svg(result: SimulationResult, title: str) -> str:
    """An SVG document: GPUs in use by project and waiting jobs over time."""
    begin = result.points[0].at if result.points else 0.0
    end = max(result.end, begin + 1.0)
    bands = _project_bands(result)
    capacity_gpus = gpu_capacity(result.nodes) / WHOLE_GPU
    queue = slice_means(result.points, begin, end, lambda p: float(p.waiting_jobs))
    most_waiting = max(4.0, 4.0 * math.ceil(max(queue, default=1.0) / 4))
    chart_width = WIDTH - LEFT_MARGIN - RIGHT_MARGIN
    queue_top = TOP_MARGIN + CHART_HEIGHT + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {queue_top + QUEUE_CHART_HEIGHT + 40}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT_MARGIN}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT_MARGIN}" y="40" fill="#666">simulated · GPUs held, by project</text>',
        *_axis_lines(TOP_MARGIN, CHART_HEIGHT, capacity_gpus, "GPUs"),
    ]
    lower = [0.0] * TIME_SLICES
    for at, (name, values) in enumerate(_band_values(result, bands, begin, end)):
        upper = [f + v for f, v in zip(lower, values, strict=True)]
        colour = COLOURS[at % len(COLOURS)]
        parts.append(
            f'<path d="{_area_path(lower, upper, TOP_MARGIN, CHART_HEIGHT, capacity_gpus)}" fill="{colour}"><title>{escape(name)}</title></path>'
        )
        parts.append(
            f'<rect x="{LEFT_MARGIN + chart_width + 12}" y="{TOP_MARGIN + at * 18}" width="11" height="11" fill="{colour}"/>'
        )
        parts.append(
            f'<text x="{LEFT_MARGIN + chart_width + 28}" y="{TOP_MARGIN + 10 + at * 18}">{escape(name[:18])}</text>'
        )
        lower = upper
    parts.append(f'<text x="{LEFT_MARGIN}" y="{queue_top - 8}" fill="#666">jobs that wait</text>')
    parts += _axis_lines(queue_top, QUEUE_CHART_HEIGHT, most_waiting, "jobs")
    parts.append(
        f'<path d="{_area_path([0.0] * TIME_SLICES, queue, queue_top, QUEUE_CHART_HEIGHT, most_waiting)}" fill="#888"/>'
    )
    for i in range(7):
        x = LEFT_MARGIN + chart_width * i / 6
        parts.append(
            f'<text x="{x:.0f}" y="{queue_top + QUEUE_CHART_HEIGHT + 18}" text-anchor="middle">{format_seconds((end - begin) * i / 6)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _project_bands(result: SimulationResult) -> list[tuple[str, tuple[int, ...]]]:
    """(name, indexes of its projects) of each band: the projects that held most, and one band for the rest."""
    held_sums = [sum(p.held[i] for p in result.points) for i in range(len(result.projects))]
    order = sorted(range(len(held_sums)), key=lambda i: (-held_sums[i], i))
    shown = order[: MAX_PROJECTS if len(order) <= MAX_PROJECTS else MAX_PROJECTS - 1]
    bands: list[tuple[str, tuple[int, ...]]] = [(result.projects[i].name, (i,)) for i in sorted(shown)]
    others = tuple(i for i in order if i not in shown)
    return [*bands, (f"{len(others)} others", others)] if others else bands


def _band_values(
    result: SimulationResult, bands: Sequence[tuple[str, tuple[int, ...]]], begin: float, end: float
) -> list[tuple[str, list[float]]]:
    def gpus_held(positions: tuple[int, ...]) -> Callable[[UsagePoint], float]:
        return lambda p: sum(p.held[i] for i in positions) / WHOLE_GPU

    return [(name, slice_means(result.points, begin, end, gpus_held(which))) for name, which in bands]


def _area_path(lower: Sequence[float], upper: Sequence[float], top: float, height: float, max_value: float) -> str:
    step = (WIDTH - LEFT_MARGIN - RIGHT_MARGIN) / TIME_SLICES

    def edge_points(values: Sequence[float]) -> list[str]:
        points = []
        for i, v in enumerate(values):
            y = top + height - height * v / max_value
            points += [f"{LEFT_MARGIN + i * step:.1f},{y:.1f}", f"{LEFT_MARGIN + (i + 1) * step:.1f},{y:.1f}"]
        return points

    return "M" + " L".join([*edge_points(upper), *reversed(edge_points(lower))]) + "Z"


def _axis_lines(top: float, height: float, max_value: float, unit: str) -> list[str]:
    width = WIDTH - LEFT_MARGIN - RIGHT_MARGIN
    lines = []
    for i in range(5):
        value = max_value * i / 4
        y = top + height - height * i / 4
        lines.append(f'<line x1="{LEFT_MARGIN}" x2="{LEFT_MARGIN + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        label = f"{value:g} {unit}" if i == 4 else f"{value:g}"
        lines.append(f'<text x="{LEFT_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    return lines
