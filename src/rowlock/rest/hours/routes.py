"""`GET /api/v1/hours`: who held how many GPU hours, used them, left them idle, lost them to failures, and waited."""

from __future__ import annotations

from collections.abc import Callable

from rowlock import objects
from rowlock.answers import workloads as answers
from rowlock.archive import database, retention
from rowlock.archive.records import RunRecord
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import BadRequest, NotFound
from rowlock.rest.call import RestCall
from rowlock.rest.hours.reading import Nodes, Place, RunHours, read_hours, read_places
from rowlock.rest.run_history.past_workloads import ask_archive, catch_up, is_visible
from rowlock.rest.run_history.runs import parse_count, parse_since, require_archive
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.hours import Hours, Window
from rowlock.workloads.figures.usage_series import UsageSeries
from rowlock.workloads.inventory.nodes import has_simulated_gpus

_WEEK = 7 * 86400.0
_DEFAULT_LIMIT, _MAX_LIMIT = 500, 10_000
_Key = tuple[str, str, str, str]
"""Project, user, name and id of what a row is about; "" for what it is not about."""
_KEYS: dict[str, Callable[[RunHours], _Key]] = {
    "project": lambda run: (run.project, "", "", ""),
    "user": lambda run: ("", run.user, "", ""),
    "job": lambda run: (run.project, run.user, run.name, run.id),
}


async def index(call: RestCall) -> answers.UsageHours:
    """GET /hours: the rows of `by` (project, user or job) since `since` seconds ago, those that held most first. A caller sees the figures of
    the runs that it may list. Raises BadRequest, NotFound, Unsupported, Unavailable."""
    query = call.validate_query("by", "since", "project", "limit")
    archive, by = require_archive(call), query.get("by") or "project"
    if by not in _KEYS:
        raise BadRequest(f"by must be project, user or job, but is {by[:60]!r}.{did_you_mean(by, list(_KEYS))}")
    limit = parse_count(query, "limit", _DEFAULT_LIMIT)
    if not 1 <= limit <= _MAX_LIMIT:
        raise BadRequest(f"limit must be between 1 and {_MAX_LIMIT}, but is {limit}.")
    seconds = parse_since(query["since"]) if query.get("since") else _WEEK
    if seconds <= 0:
        raise BadRequest(f"since must be greater than 0 seconds, but is {seconds:g}.")
    await catch_up(call, "*")
    now = call.context.clock()
    window = Window(max(0.0, now - seconds), now)
    runs = await _read(call, window)
    runs = _of_project(call, runs, query.get("project", ""))
    rows, total = _sum_up(runs, _KEYS[by])
    notes = await ask_archive(call, database.read_notes) or {}
    answer: answers.UsageHours = {
        "by": by,
        "since": objects.timestamp(window.begin),
        "until": objects.timestamp(now),
        "rows": [_row(key, hours) for key, hours in rows[:limit]],
        "total": _row(("", "", "", ""), total),
        "rowsInAll": len(rows),
        "cut": notes.get(retention.CUT_NOTE, "") if call.rights is None else "",
        "problem": archive.problem if call.rights is None else "",
    }
    return answer


def _of_project(call: RestCall, runs: list[RunHours], wanted: str) -> list[RunHours]:
    """The runs of one project, by its name or id; of all for "". Raises NotFound for a project that never had a run and is not there."""
    if not wanted:
        return runs
    project = call.context.cache.project(wanted)
    name = project.name if project else wanted
    found = [run for run in runs if run.project == name]
    if not found and project is None:
        raise NotFound(f"there is no project {wanted[:60]!r}.")
    return found


async def _read(call: RestCall, window: Window) -> list[RunHours]:
    places = None if call.rights is None else await _visible_places(call, window)
    nodes = list(call.context.cache.nodes())
    names = ["", *map(objects.name, nodes)]
    known = Nodes(
        {name: call.context.cache.card_memory(name) for name in names},
        frozenset(objects.name(node) for node in nodes if has_simulated_gpus(node)),
    )
    async with call.context.archive_reads.take(call.user):
        return await ask_archive(call, read_hours, window, places, known, await _live_usage(call)) or []


async def _visible_places(call: RestCall, window: Window) -> list[Place]:
    found = []
    for namespace, uid, kind in await ask_archive(call, read_places, window) or []:
        if is_visible(call, RunRecord("", "", "", namespace, uid, "", kind, 0.0), "list"):
            found.append((namespace, uid, kind))
    return found


async def _live_usage(call: RestCall) -> dict[str, UsageSeries]:
    """Copies of the usage of all running pods, by uid, for another thread."""
    source, found, budget = call.context.pod_usage, dict[str, UsageSeries](), TurnBudget()
    if source is None:
        return found
    for pod in list(call.context.cache.unfinished_pods()):
        await budget.pause_if_due()
        if (series := source.series(objects.uid(pod))) is not None:
            found[objects.uid(pod)] = series.copy()
    return found


def _sum_up(runs: list[RunHours], key_of: Callable[[RunHours], _Key]) -> tuple[list[tuple[_Key, Hours]], Hours]:
    sums, total = dict[_Key, Hours](), Hours()
    for run in runs:
        if run.hours.runs or run.hours.waited:
            sums.setdefault(key_of(run), Hours()).add(run.hours)
            total.add(run.hours)
    return sorted(sums.items(), key=lambda item: (-item[1].held, -item[1].waited, item[0])), total


def _row(key: _Key, hours: Hours) -> answers.HoursRow:
    project, user, name, identity = key
    return {
        "projectName": project,
        "userName": user,
        "workloadName": name,
        "workloadId": identity,
        "runs": hours.runs,
        "failedRuns": hours.failed_runs,
        "gpuHoursHeld": _hours(hours.held),
        "gpuHoursUsed": _hours(hours.used) if hours.measured else None,
        "gpuHoursIdle": _hours(hours.idle) if hours.watched else None,
        "gpuHoursWasted": _hours(hours.wasted),
        "gpuHoursNotMeasured": _hours(hours.held - hours.measured),
        "hoursWaited": _hours(hours.waited),
        "gpusSimulated": hours.is_simulated,
    }


def _hours(seconds: float) -> float:
    return round(max(0.0, seconds) / 3600, 6)
