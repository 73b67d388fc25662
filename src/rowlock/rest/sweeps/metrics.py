"""The best and the last value of a metric in each run of a sweep, from the curves that the runs left."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from rowlock import objects
from rowlock.answers import sweeps as answers
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.curves.curves import Curve
from rowlock.errors import ApiError
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.run_history.curves import read_curves
from rowlock.rest.run_history.runs import require_run
from rowlock.workloads.phase import is_stopped_early

_OVER = ("Completed", "Failed", "Deleted")
Extremes = dict[str, tuple[float, float, float]]
"""Metric → its lowest, highest and last value; NaN where there is no number."""
KnownMetrics = OrderedDict[str, tuple[str, Extremes]]
"""Id of a run that has ended → the version of its job, and its metrics. Logs are long, and those of ended runs do not change."""
_MOST_KNOWN = 5_000
_READING_S = 1.0
"""Seconds that one answer reads logs of runs: those of a thousand take many."""


def extremes_of(curve: Curve) -> tuple[float, float, float]:
    """The lowest, highest and last value of a curve."""
    numbers = [y for _, y in curve.points if not math.isnan(y)]
    if not numbers:
        return math.nan, math.nan, math.nan
    return min(numbers), max(numbers), curve.points[-1][1]


async def read_values(call: RestCall, identity: str, metric: str) -> list[float]:
    """The values of a metric that a run has printed or written so far, in their order; [] if there are none, or cannot be read."""
    try:
        curves, _, _ = await read_curves(call, await require_run(call, identity), None)
    except ApiError:
        return []  # it has not started, or nothing is kept of it
    return [y for _, y in curves[metric].points] if metric in curves else []


async def add_metrics(
    call: RestCall, runs: list[answers.SweepRun], jobs: Mapping[int, Object], metric: str, *, is_max: bool
) -> tuple[set[str], int]:
    """Set the `metric` of each run that has this one; returns the names of all metrics of the runs, and how many runs were left out because
    reading took too long. Ended runs come first: they are read once. A run whose log cannot be read has no metric. `jobs`: those of the
    runs that exist, by number."""
    names: set[str] = set()
    budget, unread, clock = TurnBudget(), 0, asyncio.get_running_loop().time
    ends, has_read = clock() + _READING_S, False
    for run in sorted(runs, key=lambda one: one["phase"] not in _OVER):
        if run["phase"] == "Waiting":
            continue
        job = jobs.get(run["index"])
        found = _known_extremes(call, run, job)
        if found is None and has_read and clock() > ends:
            unread += 1
            continue
        if found is None:
            found, has_read = await _read_extremes(call, run, job), True
        names.update(found)
        if metric in found:
            low, high, last = found[metric]
            run["metric"] = {"best": _number(high if is_max else low), "last": _number(last)}
        await budget.pause_if_due()
    return names, unread


def _known_extremes(call: RestCall, run: answers.SweepRun, job: Object | None) -> Extremes | None:
    known, identity = call.context.run_metrics, run["id"]
    if known.get(identity, ("-",))[0] != _version(job):
        return None
    known.move_to_end(identity)
    return known[identity][1]


def _version(job: Object | None) -> str:
    return objects.revision_text(job) if job else ""


async def _read_extremes(call: RestCall, run: answers.SweepRun, job: Object | None) -> Extremes:
    known, identity, version = call.context.run_metrics, run["id"], _version(job)
    try:
        past = await require_run(call, identity)
        curves, _, notes = await read_curves(call, past, None)
    except ApiError:
        return {}  # it has not started, or nothing is kept of it
    found = {name: extremes_of(curve) for name, curve in curves.items() if curve.points}
    is_over = run["phase"] in _OVER and past.record.finished
    if (is_over or (run["phase"] == "Stopped" and job and is_stopped_early(job))) and not notes:
        known[identity] = version, found
        while len(known) > _MOST_KNOWN:
            known.popitem(last=False)
    return found


def sort_runs(runs: Iterable[answers.SweepRun], *, is_max: bool) -> list[answers.SweepRun]:
    """The runs with the best value of their metric first; those without one last, in the order of their numbers."""

    def rank(run: answers.SweepRun) -> tuple[bool, float, int]:
        best = run["metric"]["best"] if run["metric"] else None
        return best is None, (-best if is_max else best) if best is not None else 0.0, run["index"]

    return sorted(runs, key=rank)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
