"""Departments: `/api/v1/org-unit/departments`. Each is one Queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.assets.asset_store import delete_assets_of
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.rest.inventory.queue_quotas import parse_resources_body, set_queue_quota
from rowlock.workloads import list_query
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.inventory import departments, quotas
from rowlock.workloads.projects import DESCRIPTION_ANNOTATION

_OPTIONS = WriteOptions(manager="rowlock")
_READERS: list_query.Readers[Object] = {
    "id": departments.department_id,
    "name": departments.department_name,
    "createdAt": lambda queue: objects.meta(queue).get("creationTimestamp"),
    "totalGpuQuota": departments.gpu_quota,
    "gpuAllocated": lambda queue: quotas.quota_status_json(queue)["allocated"]["gpu"],
    list_query.SEARCH: lambda queue: departments.department_name(queue).lower(),
}


def _select_departments(call: RestCall) -> tuple[Sequence[Object], list_query.Query]:
    cache = call.context.cache
    rows = sorted(filter(departments.is_department, cache.queues()), key=departments.department_name)
    readers = {**_READERS, "clusterId": lambda _: cache.cluster}
    return list_query.select(call.query, rows, readers, other_parameters=("verbosity",))


def _department_json(call: RestCall, queue: Object) -> dict[str, Any]:
    cache, identifier = call.context.cache, departments.department_id(queue)
    members = sorted((p for p in cache.projects().values() if p.department == identifier), key=lambda p: p.name)
    scopes = call.context.scopes
    overtime = scopes.overtime(("department", identifier)) if scopes else None
    return departments.department_json(queue, members, cache.cluster, overtime)


async def index(call: RestCall) -> Any:
    """GET /org-unit/departments: filtered, sorted and paged. Raises BadRequest."""
    rows, query = _select_departments(call)
    return list_query.list_body("departments", rows, query, lambda queue: _department_json(call, queue))


async def count(call: RestCall) -> Any:
    """GET /org-unit/departments/count: how many departments the filters leave."""
    return {"count": len(_select_departments(call)[0])}


def find_department(call: RestCall) -> Object:
    """The department that the path names, by id or name. Raises NotFound."""
    wanted = str(call.path["id"])
    queues = [queue for queue in call.context.cache.queues() if departments.is_department(queue)]
    for identify in (departments.department_id, departments.department_name):
        for queue in queues:
            if identify(queue) == wanted:
                return queue
    names = [departments.department_name(queue) for queue in queues]
    raise NotFound(f"Resource id not found: there is no department {wanted!r}.{did_you_mean(wanted, names)}")


async def show(call: RestCall) -> Any:
    """GET /org-unit/departments/{id}: by id or name. Raises NotFound."""
    call.validate_query()
    return _department_json(call, find_department(call))


async def create(call: RestCall) -> Any:
    """POST /org-unit/departments: a new Queue for projects. Raises AlreadyExists, BadRequest."""
    call.validate_query()
    request = departments.parse_department_request(await call.json())
    check_cluster_id(call, request.cluster)
    try:
        made = await call.context.api.create(kinds.QUEUE, departments.to_queue(request), options=_OPTIONS)
    except AlreadyExists:
        raise AlreadyExists(f"department {request.name!r} already exists; choose another name") from None
    return JsonResult(201, _department_json(call, made))


async def update(call: RestCall) -> Any:
    """PUT /org-unit/departments/{id}: change quotas or the description; omitted fields stay. Raises
    NotFound, BadRequest."""
    call.validate_query()
    queue, body = find_department(call), await call.json()
    name, queue_name = departments.department_name(queue), objects.name(queue)
    request = departments.parse_department_request(
        {**body, "name": body.get("name", name)} if isinstance(body, dict) else body
    )
    check_cluster_id(call, request.cluster)
    if request.name != name:
        raise BadRequest(f"a department cannot be renamed ({name!r} to {request.name!r}); create another one")
    cache = call.context.cache
    if request.description is not None:
        note = {"metadata": {"annotations": {DESCRIPTION_ANNOTATION: request.description}}}
        await call.context.api.patch(kinds.QUEUE, "", queue_name, note, type="merge", options=_OPTIONS)
    if request.quota is not None:
        await set_queue_quota(call, queue_name, request.quota)
    return _department_json(call, cache.queue(queue_name) or queue)


async def update_resources(call: RestCall) -> Any:
    """PUT and PATCH /org-unit/departments/{id}/resources: change only the quotas, given as a list. Raises NotFound, BadRequest."""
    queue = find_department(call)
    await set_queue_quota(call, objects.name(queue), *await parse_resources_body(call))
    return _department_json(call, call.context.cache.queue(objects.name(queue)) or queue)


async def delete(call: RestCall) -> Any:
    """DELETE /org-unit/departments/{id}: delete a department without projects, with its policies and assets. Raises NotFound,
    Conflict."""
    call.validate_query()
    queue = find_department(call)
    cache, name = call.context.cache, objects.name(queue)
    children = [child for child in cache.queues() if objects.dig(child, "spec.parentQueue") == name]
    members = [objects.name(child) for child in children if not objects.is_deleting(child)]
    if members:
        names = ", ".join(sorted(members)[:3]) + (" …" if len(members) > 3 else "")
        title = departments.department_name(queue)
        count, them = (f"{len(members)} projects", "them") if len(members) > 1 else ("1 project", "it")
        raise Conflict(f"department {title!r} has {count} ({names}); delete {them} first")
    await delete_assets_of(call, "department", departments.department_id(queue))
    await call.context.api.delete(kinds.QUEUE, "", name)
    await cache.wait_until("", lambda: cache.queue(name) is None)
    return JsonResult(202, {"code": 202, "message": "Request has been accepted."})
