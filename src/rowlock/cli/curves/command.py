"""`rowlock plot RUN…`: draws the metrics that runs printed as curves: as text, or as an SVG file, which needs no font file, script or network."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.curves.curve import PlottedCurve
from rowlock.cli.curves.terminal import Points, draw_metric, tell_apart
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.history.runs import RUNS, find_run
from rowlock.cli.output import show, show_json, tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

Chart = tuple[str, str, list[tuple[str, Points]]]


def plot(line: CommandLine) -> None:
    if not line.words:
        raise CommandError("`rowlock plot` needs at least one run; `rowlock history` shows them", 2)
    if line.rank is not None and line.rank < 0:
        raise CommandError(f"--rank counts from 0, but is {line.rank}", 2)
    server = client.connect(line)
    runs: list[tuple[Run, dict[str, PlottedCurve]]] = []
    for word in dict.fromkeys(line.words):
        run = find_run(server, project(line), word)
        curves = curves_of(server, run, line.rank)
        if curves:
            runs.append((run, curves))
        else:
            tell(f"{word} printed no line such as step=10 loss=0.31 and wrote no TensorBoard scalars: it has no curves")
    if not runs:
        raise CommandError("nothing to plot; `rowlock.runtime.progress(step, total, loss=…)` prints such lines")
    charts = _select_charts(_charts(runs), line.metric)
    if line.svg:
        _write_svg(line.svg, charts)
    elif line.json:
        show_json([_chart_json(chart) for chart in charts])
    else:
        _show(charts)


def curves_of(server: ServerClient, run: Run, rank: int | None = None) -> dict[str, PlottedCurve]:
    """The curves of one rank of a run by metric, as the server reads them; without `rank`, of the rank that began first, and those in
    TensorBoard's event files. Raises CommandError."""
    answer = server.get(f"{RUNS}/{run['id']}/curves", rank=rank)
    for note in answer["notes"]:
        tell(note)
    return {
        one["metric"]: PlottedCurve(one["axis"], [(float(x), float(y)) for x, y in one["points"]])
        for one in answer["curves"]
    }


def _charts(runs: list[tuple[Run, dict[str, PlottedCurve]]]) -> list[Chart]:
    """A chart for each metric and axis, in the order in which they were printed."""
    names = [run["name"] for run, _ in runs]
    charts: dict[tuple[str, str], list[tuple[str, Points]]] = {}
    for run, curves in runs:
        label = run["name"] if names.count(run["name"]) == 1 else f"{run['name']} ({run['id'][:8]})"
        for name, curve in curves.items():
            if curve.points:
                charts.setdefault((name, curve.axis), []).append((label, curve.points))
    return [(name, axis, curves) for (name, axis), curves in charts.items()]


def _select_charts(charts: list[Chart], wanted: list[str]) -> list[Chart]:
    names = [name for name, _, _ in charts]
    for name in wanted:
        if name not in names:
            raise CommandError(
                f"there is no metric {name}.{suggest_nearest(name, names)} Printed were: {', '.join(names)}."
            )
    return [chart for chart in charts if not wanted or chart[0] in wanted]


def _chart_json(chart: Chart) -> dict[str, Any]:
    """A chart as JSON. NaN and infinite values become null, because JSON has neither."""
    name, axis, curves = chart
    runs = [
        {"run": label, "points": [[x, y if math.isfinite(y) else None] for x, y in points]} for label, points in curves
    ]
    return {"metric": name, "axis": axis, "runs": runs}


def _write_svg(file: str, charts: list[Chart]) -> None:
    try:
        Path(file).write_text(to_svg(charts), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
    show(f"{file}: {', '.join(name for name, _, _ in charts)}")


def _show(charts: list[Chart]) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    has_braille = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    for number, (name, axis, curves) in enumerate(charts):
        if number:
            show("")
        for text in draw_metric(name, axis, curves, width, braille=has_braille):
            show(text)


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
