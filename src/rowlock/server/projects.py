"""Projects and the cluster: `GET/POST/PUT/DELETE /api/v1/org-unit/projects`, `GET /api/v1/clusters`.

A project is two objects; they are written queue first, so that a namespace never names a queue that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock import kinds, objects
from rowlock.api import DeleteOptions
from rowlock.errors import AlreadyExists, BadRequest, Conflict, NotFound
from rowlock.server.call import Answer, Call
from rowlock.server.catalog import Catalog
from rowlock.server.workloads import ACCEPTED, MANAGER
from rowlock.workloads import present as workload_json
from rowlock.workloads import projects, query
from rowlock.workloads.fields import nearest
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.projects import Project

_FIELDS = ("name", "id", "clusterId", "createdAt", "departmentName")


_READERS: query.Readers[Project] = {
    "name": lambda project: project.name,
    "id": lambda project: project.id,
    "createdAt": lambda project: project.created,
    "departmentName": lambda project: project.department,
    query.SEARCH: lambda project: project.name.lower(),
}


def _selected(call: Call) -> tuple[Sequence[Project], query.Query]:
    catalog = call.room.catalog
    asked = query.parse(call.query, _FIELDS)
    found = sorted(catalog.projects().values(), key=lambda p: p.name)
    return query.select(found, asked, {**_READERS, "clusterId": lambda _: catalog.cluster}), asked


async def index(call: Call) -> Any:
    found, asked = _selected(call)
    page, following = query.page(found, asked)
    body: dict[str, Any] = {"projects": [_shown(call.room.catalog, project) for project in page]}
    return body if following is None else {**body, "next": following}


async def count(call: Call) -> Any:
    return {"count": len(_selected(call)[0])}


def _shown(catalog: Catalog, project: Project) -> dict[str, Any]:
    return projects.present(project, catalog.queue(project.queue), catalog.cluster)


def _find(call: Call) -> Project:
    word = str(call.path["id"])
    found = call.room.catalog.project(word)
    if found is None:
        names = [p.name for p in call.room.catalog.projects().values()]
        raise NotFound(f"project {word!r} was not found.{nearest(word, names)}")
    return found


async def show(call: Call) -> Any:
    return _shown(call.room.catalog, _find(call))


async def create(call: Call) -> Any:
    asked = projects.read(await call.json())
    catalog, api = call.room.catalog, call.room.api
    taken = catalog.projects().get(asked.namespace)
    if taken is not None:
        same = f"project {asked.name!r} already exists"
        other = f"project {taken.name!r} already has the namespace {asked.namespace}, which {asked.name!r} would need"
        raise AlreadyExists(f"{same if taken.name == asked.name else other}; choose another name")
    department = projects.to_department(asked.department)
    if catalog.queue(objects.name(department)) is None:
        if asked.department != "default":
            raise BadRequest(f"there is no department {asked.department!r}; leave parentId out for the default one")
        await api.create(kinds.QUEUE, department, options=MANAGER)
    queue = projects.to_queue(asked)
    if catalog.queue(objects.name(queue)) is not None:
        raise AlreadyExists(f"there is a queue {objects.name(queue)!r} already; choose another name for the project")
    await api.create(kinds.QUEUE, queue, options=MANAGER)
    try:
        made = await api.create(kinds.NAMESPACE, projects.to_namespace(asked), options=MANAGER)
    except AlreadyExists:
        await api.delete(kinds.QUEUE, "", objects.name(queue))
        raise AlreadyExists(f"the namespace {asked.namespace} exists already and is no project's") from None
    await catalog.until("", lambda: asked.namespace in catalog.projects())
    queue_name = objects.name(queue)
    await catalog.until("", lambda: catalog.queue(queue_name) is not None)
    return Answer(201, _shown(catalog, projects.of(made, catalog.queue(queue_name))))


async def update(call: Call) -> Any:
    """New quotas; a project keeps its name."""
    project, body = _find(call), await call.json()
    asked = projects.read({**body, "name": body.get("name", project.name)} if isinstance(body, dict) else body)
    if asked.name != project.name:
        raise BadRequest(f"a project cannot be renamed ({project.name!r} to {asked.name!r}); create another one")
    gpu = projects.to_queue(asked)["spec"]["resources"]["gpu"]
    patch = {"spec": {"resources": {"gpu": gpu}}}
    changed = await call.room.api.patch(kinds.QUEUE, "", project.queue, patch, type="merge", options=MANAGER)
    catalog = call.room.catalog
    await catalog.until(
        "", lambda: objects.revision(catalog.queue(project.queue) or changed) >= objects.revision(changed)
    )
    return _shown(catalog, catalog.project(project.id) or project)


async def delete(call: Call) -> Any:
    """The namespace and the queue; not while workloads are unfinished."""
    project = _find(call)
    catalog, api = call.room.catalog, call.room.api
    rows = [row for row in catalog.rows() if row.project.namespace == project.namespace]
    busy = [objects.name(row.job) for row in rows if catalog.standing(row.uid).phase not in TERMINAL]
    if busy:
        one = len(busy) == 1
        count, them = f"{len(busy)} unfinished workload{'' if one else 's'}", "it" if one else "them"
        named = ", ".join(sorted(busy)[:3]) + (" …" if len(busy) > 3 else "")
        line = f"`rowlock delete -p {project.name} {min(busy) if one else '--all'}`"
        raise Conflict(f"project {project.name!r} has {count} ({named}); delete {them} first: {line}")
    await api.delete(kinds.NAMESPACE, "", project.namespace, options=DeleteOptions(propagation="Background"))
    if catalog.queue(project.queue) is not None:
        await api.delete(kinds.QUEUE, "", project.queue)

    def leaving() -> bool:
        left = catalog.projects().get(project.namespace)
        return left is None or left.deleting

    await catalog.until("", leaving)
    return Answer(202, ACCEPTED)


async def clusters(call: Call) -> Any:
    """A bare array, as Run:ai answers."""
    settings, catalog = call.room.settings, call.room.catalog
    system = catalog.namespace("kube-system") or {}
    created = str(objects.meta(system).get("creationTimestamp") or "1970-01-01T00:00:00Z")
    return [
        {
            "uuid": catalog.cluster,
            "tenantId": workload_json.TENANT,
            "name": settings.cluster_name,
            "createdAt": created,
            "version": settings.version,
            "status": {"state": "Connected", "conditions": []},
        }
    ]
