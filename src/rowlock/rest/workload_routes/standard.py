"""Workloads of one pod: `/api/v1/workloads/trainings` and `/api/v1/workloads/workspaces`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rowlock import objects
from rowlock.errors import NotFound
from rowlock.rest.assets import submits
from rowlock.rest.call import Endpoint, RestCall
from rowlock.rest.workload_routes import suspension
from rowlock.rest.workloads import delete as delete_any
from rowlock.rest.workloads import find_workload, submit_workload
from rowlock.workloads import runai_json, submission

_PATHS = {"Training": "trainings", "Workspace": "workspaces", "Distributed": "distributed"}
"""Workload type → last word of its path."""


async def submit_training(call: RestCall) -> Any:
    """POST /workloads/trainings: one pod that trains. Raises BadRequest, AlreadyExists, Conflict."""
    return await _submit(call, "Train")


async def submit_workspace(call: RestCall) -> Any:
    """POST /workloads/workspaces: one pod for interactive work, with high priority and never preempted unless
    the request says otherwise. Raises BadRequest, AlreadyExists, Conflict."""
    return await _submit(call, "Build")


async def _submit(call: RestCall, category: str) -> Any:
    call.validate_query("dryRun")
    workload_type = "Workspace" if category == "Build" else "Training"
    body, references, check_policy = submits.expand(call, await call.json(), workload_type)
    request = replace(submission.parse_standard_submission(body, category), assets=references)
    check_policy()
    return await submit_workload(call, request, runai_json.standard_workload_json)


async def show(call: RestCall) -> Any:
    """GET /workloads/trainings/{id} and workspaces/{id}: the workload with its specification as submitted. Raises NotFound."""
    call.validate_query()
    return runai_json.standard_workload_json(find_workload(call))


def of_type(workload_type: str, serve: Endpoint) -> Endpoint:
    """Restrict an endpoint to workloads of one type; others get NotFound."""

    async def serve_of_type(call: RestCall) -> Any:
        job = find_workload(call).job
        actual = runai_json.workload_type(job)
        if actual != workload_type:
            raise NotFound(
                f"Resource id not found: {objects.name(job)} is no {workload_type.lower()}:"
                f" ask for /api/v1/workloads/{_PATHS[actual]}/{call.path['id']}"
            )
        return await serve(call)

    serve_of_type.__doc__ = serve.__doc__
    return serve_of_type


ENDPOINTS = {
    kind: {
        "show": of_type(kind, show),
        "delete": of_type(kind, delete_any),
        "suspend": of_type(kind, suspension.suspend),
        "resume": of_type(kind, suspension.resume),
    }
    for kind in ("Training", "Workspace")
}
"""Workload type → action → endpoint."""
