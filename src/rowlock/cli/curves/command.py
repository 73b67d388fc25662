"""`rowlock plot RUN…`: draws the metrics that runs printed as curves."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.curves.curve import PlottedCurve
from rowlock.cli.curves.event_directories import read_event_curves
from rowlock.cli.curves.svg import to_svg
from rowlock.cli.curves.terminal import Points, draw_metric
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.history.runs import RUNS, find_run
from rowlock.cli.output import show, show_json, tell

Chart = tuple[str, str, list[tuple[str, Points]]]


def plot(line: CommandLine) -> int:
    """Draw what runs printed (`step=10 loss=0.31`, JSON lines) or wrote for TensorBoard as curves."""
    if not line.words:
        raise CommandError("`rowlock plot` needs at least one run; `rowlock history` shows them", 2)
    if line.rank is not None and line.rank < 0:
        raise CommandError(f"--rank counts from 0, but is {line.rank}", 2)
    server = client.connect(line)
    runs: list[tuple[dict[str, Any], dict[str, PlottedCurve]]] = []
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
    return 0


def curves_of(server: ServerClient, run: dict[str, Any], rank: int | None = None) -> dict[str, PlottedCurve]:
    """The curves of one rank of a run by metric, as the server reads them from its log; without `rank`, of the rank that began first,
    and those in TensorBoard's event files. Raises CommandError."""
    answer = server.get(f"{RUNS}/{run['id']}/curves", rank=rank)
    for note in answer["notes"]:
        tell(note)
    printed = {
        one["metric"]: PlottedCurve(one["axis"], [(float(x), float(y)) for x, y in one["points"]])
        for one in answer["curves"]
    }
    return printed if rank is not None else {**read_event_curves(server.directory, run), **printed}


def _charts(runs: list[tuple[dict[str, Any], dict[str, PlottedCurve]]]) -> list[Chart]:
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
