"""One action on up to a hundred workloads: `POST /api/v1/workloads/batch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.errors import ApiError
from rowlock.rest.call import RestCall
from rowlock.rest.workload_routes.suspension import set_suspended
from rowlock.rest.workloads import delete_workload, lookup_workload
from rowlock.workloads.body_fields import BodyErrors, Fields

MAX_WORKLOADS = 100
_VERBS = {"delete": "delete", "suspend": "patch", "resume": "patch"}
"""Action → the Kubernetes verb that it needs."""


async def run_action(call: RestCall) -> Any:
    """POST /workloads/batch: apply `action` to the workloads `ids`; returns the ids that succeeded, and the reason for each that
    failed. Raises BadRequest."""
    call.validate_query()
    ids, action = _parse_batch(await call.json())
    succeeded: list[str] = []
    failed: list[dict[str, Any]] = []
    for identifier in ids:
        try:
            await _act(call, identifier, action)
            succeeded.append(identifier)
        except ApiError as error:
            failed.append({"id": identifier, "code": error.code, "message": error.message})
    return {"id": call.context.new_id(), "succeeded": succeeded, "failed": failed}


def _parse_batch(body: Any) -> tuple[list[str], str]:
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    top.allow_only("ids", "action")
    ids, action = top.get("ids"), top.choice("action", *_VERBS)
    if not action:
        top.add_error("action", "required", f"must be one of {', '.join(_VERBS)}.")
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        top.add_error("ids", "type", "must be a list of the ids of workloads.")
    elif len(ids) > MAX_WORKLOADS:
        top.add_error("ids", "max", f"{len(ids)} ids were given; the limit is {MAX_WORKLOADS}. Send several requests.")
    errors.raise_if_any()
    return list(dict.fromkeys(ids or [])), action


async def _act(call: RestCall, identifier: str, action: str) -> None:
    workload = lookup_workload(call.context.cache, identifier)
    job = workload.job
    call.require(_VERBS[action], kinds.by_object(job), objects.namespace(job), name=objects.name(job))
    if action == "delete":
        await delete_workload(call, workload)
    else:
        await set_suspended(call, workload, suspended=action == "suspend")
