"""Projects: `GET/POST/PUT/DELETE /api/v1/org-unit/projects`.

A project is a Queue and a Namespace. The Queue is written first, so that a Namespace never names a missing Queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.errors import AlreadyExists, ApiError, BadRequest, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.accounts import access_rules
from rowlock.rest.assets.asset_store import delete_assets_of
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.informers import InformerCache
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.rest.inventory.queue_quotas import parse_resources_body, set_queue_quota
from rowlock.rest.inventory.scopes import unknown_project
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS
from rowlock.workloads import list_query, projects
from rowlock.workloads.accounts.access_rules import is_of_namespace
from rowlock.workloads.inventory import quotas
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.projects import Project, ProjectRequest

_READERS: list_query.Readers[Project] = {
    "name": lambda project: project.name,
    "id": lambda project: project.id,
    "createdAt": lambda project: project.created,
    "departmentId": lambda project: project.department,
    "departmentName": lambda project: project.department,
    "parentId": lambda project: project.department,
    "parentName": lambda project: project.department,
    "phase": lambda project: "Deleting" if project.deleting else "Ready",
    "totalGpuQuota": lambda project: project.quota,
    list_query.SEARCH: lambda project: project.name.lower(),
}


_CHOICES = {"phase": ("Creating", "Updating", "Deleting", "Deleted", "Initializing", "Ready", "NotReady", "Unknown")}


def _select_projects(call: RestCall) -> tuple[Sequence[Project], list_query.Query]:
    cache = call.context.cache
    all_projects = sorted(cache.projects().values(), key=lambda p: p.name)

    def allocated_gpus(project: Project) -> float:
        return float(quotas.quota_status_json(cache.queue(project.queue))["allocated"]["gpu"])

    readers = {**_READERS, "clusterId": lambda _: cache.cluster, "gpuAllocated": allocated_gpus}
    return list_query.select(
        call.query, all_projects, readers, other_parameters=("verbosity", "memoryUnitMb"), choices=_CHOICES
    )


async def index(call: RestCall) -> Any:
    """GET /org-unit/projects: the projects as Run:ai's list, filtered and paged."""
    matches, query = _select_projects(call)
    return list_query.list_body("projects", matches, query, lambda one: _project_json(call, one))


async def count(call: RestCall) -> Any:
    """GET /org-unit/projects/count: how many projects the filters leave."""
    return {"count": len(_select_projects(call)[0])}


def _project_json(call: RestCall, project: Project) -> dict[str, Any]:
    cache, scopes = call.context.cache, call.context.scopes
    overtime = scopes.overtime(("project", project.namespace)) if scopes else None
    return projects.project_json(project, cache.queue(project.queue), cache.cluster, overtime)


def find_project(call: RestCall) -> Project:
    """The project that the path names, by id or name. Raises NotFound."""
    id_or_name = str(call.path["id"])
    project = call.context.cache.project(id_or_name)
    if project is None:
        raise NotFound(unknown_project(call.context.cache, id_or_name))
    call.require_right(kinds.NAMESPACE, project.namespace, project.namespace)
    return project


async def show(call: RestCall) -> Any:
    """GET /org-unit/projects/{id}: by id or name. Raises NotFound."""
    call.validate_query()
    return _project_json(call, find_project(call))


async def create(call: RestCall) -> Any:
    """POST /org-unit/projects: create the Queue and the Namespace of a project. Raises AlreadyExists, BadRequest."""
    call.validate_query()
    project = projects.parse_project_request(await call.json())
    check_cluster_id(call, project.cluster)
    cache, api = call.context.cache, call.context.api
    existing = cache.projects().get(project.namespace)
    if existing is not None:
        same = f"project {project.name!r} already exists"
        other = f"project {existing.name!r} already has the namespace {project.namespace}, which {project.name!r} would need"
        raise AlreadyExists(f"{same if existing.name == project.name else other}; choose another name")
    await _require_department(call, project.department)
    queue = projects.to_queue(project)
    is_left_behind = await _create_or_take_up(call, queue)
    try:
        namespace = await api.create(kinds.NAMESPACE, projects.to_namespace(project), options=WRITE_OPTIONS)
    except ApiError as refusal:
        if refusal.code >= 500 or is_left_behind:
            raise  # the namespace may exist although its answer was lost, or be another request's: keep its queue
        await api.delete(kinds.QUEUE, "", objects.name(queue))  # a leftover queue would block the project's name
        if isinstance(refusal, AlreadyExists):
            raise AlreadyExists(f"the namespace {project.namespace} exists already and belongs to no project") from None
        raise
    return JsonResult(201, _project_json(call, projects.project_of(namespace, cache.queue(objects.name(queue)))))


async def _require_department(call: RestCall, name: str) -> None:
    """Create the default department if it is missing. Raises BadRequest if another department is missing."""
    cache, api, department = call.context.cache, call.context.api, projects.to_department(name)
    if cache.queue(objects.name(department)) is not None:
        return
    if name != "default":
        raise BadRequest(
            f"there is no department {name!r}: GET /api/v1/org-unit/departments lists them, and without"
            " parentId a project is in the default one"
        )
    with suppress(AlreadyExists):  # another request created it meanwhile
        await api.create(kinds.QUEUE, department, options=WRITE_OPTIONS)


async def _restore_queue(call: RestCall, project: Project, requested: ProjectRequest) -> None:
    """Recreate the deleted queue of a project with the requested quota and department. The old values are lost, so omitted fields get
    the defaults of a new project."""
    await _require_department(call, requested.department)
    made = projects.to_queue(requested)
    queue = {**made, "metadata": {**made["metadata"], "name": project.queue}}
    try:
        await call.context.api.create(kinds.QUEUE, queue, options=WRITE_OPTIONS)
    except AlreadyExists:  # another request created it meanwhile
        if requested.quota is not None:
            await set_queue_quota(call, project.queue, requested.quota)


def _has_lost_queue(call: RestCall, project: Project) -> bool:
    return call.context.cache.queue(project.queue) is None and not project.deleting


async def _create_or_take_up(call: RestCall, queue: Object) -> bool:
    """Create the queue of a project. Returns True if it replaced one left behind by an interrupted request. Raises AlreadyExists if the
    queue is in use."""
    cache, api, name = call.context.cache, call.context.api, objects.name(queue)
    if cache.queue(name) is None:
        try:
            await api.create(kinds.QUEUE, queue, options=WRITE_OPTIONS)
        except AlreadyExists:
            await cache.wait_until("", lambda: cache.queue(name) is not None)
        else:
            return False
    if call.rights is not None or not _is_left_behind(cache, queue):
        raise AlreadyExists(f"there is a queue {name!r} already; choose another name for the project")
    await api.delete(kinds.QUEUE, "", name)  # it may be an earlier project's: do not inherit its limits and usage
    await api.create(kinds.QUEUE, queue, options=WRITE_OPTIONS)
    return True


def _is_left_behind(cache: InformerCache, queue: Object) -> bool:
    """Whether this queue exists but no namespace uses it, because an earlier request was interrupted."""
    existing, name = cache.queue(objects.name(queue)), objects.name(queue)
    if existing is None or objects.is_deleting(existing) or any(one.queue == name for one in cache.projects().values()):
        return False
    return objects.dig(existing, "spec.displayName") == objects.dig(queue, "spec.displayName") and (
        objects.labels(existing).items() >= objects.labels(queue).items()
    )


async def update(call: RestCall) -> Any:
    """PUT /org-unit/projects/{id}: change quotas or the description of a project; omitted fields stay. It cannot be renamed.
    A deleted queue is created again. Raises NotFound, BadRequest."""
    call.validate_query()
    project, body = find_project(call), await call.json()
    requested = projects.parse_project_request(
        {**body, "name": body.get("name", project.name)} if isinstance(body, dict) else body
    )
    check_cluster_id(call, requested.cluster)
    if requested.name != project.name:
        raise BadRequest(f"a project cannot be renamed ({project.name!r} to {requested.name!r}); create another one")
    cache = call.context.cache
    if _has_lost_queue(call, project):
        await _restore_queue(call, project, requested)
    elif requested.quota is not None:
        await set_queue_quota(call, project.queue, requested.quota)
    if requested.description is not None and requested.description != project.description:
        note = {"metadata": {"annotations": {projects.DESCRIPTION_ANNOTATION: requested.description}}}
        api = call.context.api
        await api.patch(kinds.NAMESPACE, "", project.namespace, note, type="merge", options=WRITE_OPTIONS)
    return _project_json(call, cache.project(project.id) or project)


async def update_resources(call: RestCall) -> Any:
    """PUT and PATCH /org-unit/projects/{id}/resources: change only the quotas, given as a list. A deleted queue is created again.
    Raises NotFound, BadRequest."""
    project = find_project(call)
    quota, given = await parse_resources_body(call)
    if _has_lost_queue(call, project):
        await _restore_queue(call, project, ProjectRequest(project.name, project.namespace, project.department, quota))
    else:
        await set_queue_quota(call, project.queue, quota, given)
    cache = call.context.cache
    return _project_json(call, cache.project(project.id) or project)


async def delete(call: RestCall) -> Any:
    """DELETE /org-unit/projects/{id}: delete the namespace and queue of a project without unfinished workloads, its policies, and the
    access rules of its service accounts. Raises NotFound, Conflict."""
    call.validate_query()
    project = find_project(call)
    call.require("delete", kinds.QUEUE, name=project.queue)  # checked first: without either right nothing is deleted
    cache, api = call.context.cache, call.context.api
    rows = [row for row in cache.rows() if row.project.namespace == project.namespace]
    unfinished = [row.name for row in rows if cache.status(row.uid).phase not in TERMINAL]
    if unfinished:
        single = len(unfinished) == 1
        count, them = f"{len(unfinished)} unfinished workload{'' if single else 's'}", "it" if single else "them"
        names = ", ".join(sorted(unfinished)[:3]) + (" …" if len(unfinished) > 3 else "")
        line = f"`rowlock delete -p {project.name} {min(unfinished) if single else '--all'}`"
        raise Conflict(f"project {project.name!r} has {count} ({names}); delete {them} first: {line}")
    if call.context.settings.dialect is None:  # bindings of a real cluster are its administrators'
        await access_rules.delete_rules_of(call, lambda subject: is_of_namespace(subject, project.namespace))
        await delete_assets_of(call, "project", project.id)
    await api.delete(kinds.NAMESPACE, "", project.namespace, options=DeleteOptions(propagation="Background"))
    if cache.queue(project.queue) is not None:
        await api.delete(kinds.QUEUE, "", project.queue)
    return JsonResult(202, ACCEPTED)
