"""The sweeps that there are: list, show, stop, resume, delete."""

from __future__ import annotations

from typing import Any, NamedTuple

from rowlock import kinds, objects
from rowlock.answers import sweeps as answers
from rowlock.api import DeleteOptions
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import BadRequest, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.scopes import require_project
from rowlock.rest.sweeps.metrics import add_metrics, sort_runs
from rowlock.rest.sweeps.submits import require_sweeps
from rowlock.rest.sweeps.views import REFUSED, begun, command_of, find_runs, run_json, sweep_json
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS
from rowlock.selectors import parse_labels
from rowlock.sweeps.sweep import LABEL, STOPPED_ANNOTATION, STOPPED_NOW, Sweep, is_sweep, read_object
from rowlock.workloads import runai_json
from rowlock.workloads.objects import WORKLOAD_ID
from rowlock.workloads.projects import Project

_RUNS_PER_TURN = 32
"""Jobs looked at before yielding to the event loop."""


class _Found(NamedTuple):
    project: Project
    config_map: Object
    sweep: Sweep | None


async def index(call: RestCall) -> Any:
    """GET /sweeps: the sweeps of the projects that the caller may read, the newest first; only those of `project`, and of this `name`, if
    they are given. Raises BadRequest for an unknown project."""
    query = call.validate_query("project", "name")
    found = [one for one in await _find(call, query.get("project", "")) if query.get("name", _name(one)) == _name(one)]
    shown = [await _list_json(call, one) for one in found]
    return {"sweeps": sorted(shown, key=lambda one: (one["createdAt"], one["name"]), reverse=True)}


async def show(call: RestCall) -> Any:
    """GET /sweeps/{id}: one sweep with its runs. With `metric`, the runs have its values, and the best run is first: that with the lowest
    value, or with order=max the highest one. Raises NotFound, BadRequest."""
    query = call.validate_query("metric", "order")
    if query.get("order", "min") not in ("min", "max"):
        raise BadRequest(f"order must be min or max, but is {query['order'][:60]!r}.")
    found = await _find_one(call)
    cache, sweep = call.context.cache, found.sweep
    if sweep is None:
        body = await _list_json(call, found)
        return {**body, "metrics": [], "unread": 0, "best": None, "entries": []}
    runs = await _all_runs(call, found.config_map, sweep)
    made = begun(found.config_map, sweep, runs)
    rows: list[answers.SweepRun] = []
    budget = TurnBudget()
    for number in range(sweep.drawn_count):  # others have no parameters yet
        rows.append(run_json(sweep, number, runs.get(number), made, cache))
        await budget.pause_if_due()
    names, unread = set[str](), 0
    if metric := query.get("metric"):
        call.require("get", kinds.POD, objects.namespace(found.config_map), subresource="log")
        is_max = query.get("order") == "max"
        names, unread = await add_metrics(call, rows, runs, metric, is_max=is_max)
        rows = sort_runs(rows, is_max=is_max)
    best = rows[0]["index"] if rows[0]["metric"] and rows[0]["metric"]["best"] is not None else None
    if best is not None:
        rows[0]["command"] = command_of(runs.get(best))
    body = sweep_json(found.project, found.config_map, sweep, runs, cache)
    return {**body, "metrics": sorted(names), "unread": unread, "best": best, "entries": rows}


async def stop(call: RestCall) -> Any:
    """POST /sweeps/{id}/stop: make no further runs; those that were made go on, or with now=true are suspended until the sweep is resumed.
    Raises NotFound, Conflict."""
    call.validate_query("now")
    return await _set_stopped(call, STOPPED_NOW if call.flag("now") else "true")


async def resume(call: RestCall) -> Any:
    """POST /sweeps/{id}/resume: make the rest of the runs, and resume those that were suspended with the sweep. Raises NotFound, Conflict."""
    call.validate_query()
    return await _set_stopped(call, None)


async def delete(call: RestCall) -> Any:
    """DELETE /sweeps/{id}: delete the sweep and the jobs of its runs; the archive keeps what ran. Raises NotFound."""
    call.validate_query()
    config_map = (await _find_one(call)).config_map
    options = DeleteOptions(propagation="Background", uid=objects.uid(config_map))
    await call.context.api.delete(kinds.CONFIG_MAP, *objects.key(config_map), options=options)
    return JsonResult(202, ACCEPTED)


async def _set_stopped(call: RestCall, word: str | None) -> Any:
    """Write this word into the annotation of a stopped sweep; None: it goes on."""
    found = await _find_one(call)
    if found.sweep is None:
        raise Conflict(f"{_name(found)}: {REFUSED[0].lower()}{REFUSED[1:]}")
    runs = await _all_runs(call, found.config_map, found.sweep)
    phase = sweep_json(found.project, found.config_map, found.sweep, runs, call.context.cache)["phase"]
    if phase == "Completed":
        verb = "stopped" if word else "resumed"
        raise Conflict(f"sweep {_name(found)} has completed and cannot be {verb}; submit another one instead")
    annotations = {STOPPED_ANNOTATION: word}
    patch = {"metadata": {"uid": objects.uid(found.config_map), "annotations": annotations}}
    await call.context.api.patch(
        kinds.CONFIG_MAP, *objects.key(found.config_map), patch, type="merge", options=WRITE_OPTIONS
    )
    return JsonResult(202, ACCEPTED)


def _name(found: _Found) -> str:
    return objects.labels(found.config_map)[LABEL]


async def _find(call: RestCall, project: str = "", identity: str | None = None) -> list[_Found]:
    """The sweeps that the caller may list, of a project, or of all; only the one of this id, if it is given: each is parsed and unsealed."""
    require_sweeps(call)
    cache, key = call.context.cache, call.context.settings.sweep_key.encode()
    projects = [require_project(call, project, "project")] if project else list(cache.projects().values())
    found: list[_Found] = []
    budget = TurnBudget()
    for one in projects:
        if not call.allows("list", kinds.CONFIG_MAP, one.namespace):
            continue
        page = await call.context.api.list(kinds.CONFIG_MAP, one.namespace, labels=parse_labels(LABEL))
        for each in page.items:
            if identity in (None, objects.labels(each).get(WORKLOAD_ID)) and is_sweep(each):
                found.append(_Found(one, each, read_object(each, key)))
                await budget.pause_if_due()
    return found


async def _find_one(call: RestCall) -> _Found:
    """The sweep that the path names, if the caller has the route's right to it. Raises NotFound, Forbidden."""
    identity = str(call.path["id"])
    named = await _find(call, identity=identity)
    found = next((one for one in named if one.sweep is not None), named[0] if named else None)
    if found is None:  # anybody may write a ConfigMap with the id of a sweep
        raise NotFound(f"Resource id not found: there is no sweep {identity!r}. GET /api/v1/sweeps lists them.")
    call.require_right(kinds.CONFIG_MAP, *objects.key(found.config_map))
    return found


async def _all_runs(call: RestCall, config_map: Object, sweep: Sweep) -> dict[int, Object]:
    runs: dict[int, Object] = {}
    budget = TurnBudget()
    for start in range(0, sweep.total, _RUNS_PER_TURN):
        numbers = range(start, min(start + _RUNS_PER_TURN, sweep.total))
        runs |= find_runs(call.context.cache, config_map, sweep, numbers)
        await budget.pause_if_due()
    return runs


async def _list_json(call: RestCall, found: _Found) -> answers.Sweep:
    if found.sweep is not None:
        runs = await _all_runs(call, found.config_map, found.sweep)
        return sweep_json(found.project, found.config_map, found.sweep, runs, call.context.cache)
    return {
        "id": objects.labels(found.config_map).get(WORKLOAD_ID, ""),
        "name": _name(found),
        "projectName": found.project.name,
        "namespace": objects.namespace(found.config_map),
        "createdAt": runai_json.created_at(found.config_map),
        "createdBy": "",
        "phase": "Refused",
        "message": REFUSED,
        "search": "",
        "seed": 0,
        "maxParallel": 0,
        "metric": "",
        "order": "min",
        "stop": "",
        "stopAfter": 0,
        "parameters": [],
        "submitCommand": "",
        "runs": {
            "total": 0,
            "begun": 0,
            "unfinished": 0,
            "completed": 0,
            "failed": 0,
            "stopped": 0,
            "suspended": 0,
            "deleted": 0,
        },
    }
