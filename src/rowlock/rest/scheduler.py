"""The scheduler's endpoints: the planner's snapshot, and a trial of jobs that are not submitted.

A snapshot has resource requests, node labels, queues and names, but no secrets and no environment, because the planner
does not need them. Trials run the real planner on a copy of the snapshot, on a thread.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Conflict
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.scopes import unknown_project
from rowlock.scheduling.explain.what_if import DryRunOutcome, DryRunPlanner
from rowlock.scheduling.model.snapshot import Snapshot, dumps
from rowlock.workloads import dry_run_gangs
from rowlock.workloads.body_fields import did_you_mean

_MAX_OBJECTS = 100
"""Most objects of one request."""
_FIELDS, _MAX_QUOTED = ("objects", "project"), 60


def _take_snapshot(call: RestCall) -> Snapshot:
    """Take a snapshot. Raises Conflict if our scheduler does not run."""
    take_snapshot = call.context.take_snapshot
    if take_snapshot is None:
        is_real = call.context.settings.dialect is not None
        remedy = "start the server with `--scheduler own`" if is_real else "start it without `--without scheduler`"
        raise Conflict(f"this cluster runs without rowlock's scheduler: {remedy}")
    return take_snapshot()


async def snapshot(call: RestCall) -> Response:
    """GET /scheduler/snapshot: the planner's input as JSON, which `rowlock scheduler replay` reads."""
    call.validate_query()
    return Response(dumps(_take_snapshot(call)), media_type="application/json")


async def what_if(call: RestCall) -> Any:
    """POST /scheduler/what-if: what would happen to each gang of `objects`, in order. Raises BadRequest, Conflict, and what admission
    raises."""
    call.validate_query()
    body = await call.json()
    manifests, namespace = parse_manifests(body), project_namespace(call, body)
    admitted = []
    for obj in manifests:
        admitted.append(await _dry_run_create(call, obj, namespace))
        await asyncio.sleep(0)  # a dry run never yields to the event loop
    homes = {objects.name(n): n for n in (await call.context.api.list(kinds.NAMESPACE)).items}
    page = await call.context.api.list(kinds.PRIORITY_CLASS)
    classes = {objects.name(c): int(c.get("value") or 0) for c in page.items}
    now = call.context.clock()

    def plan(copy: Snapshot) -> list[DryRunOutcome]:
        return DryRunPlanner(copy).dry_run(dry_run_gangs.dry_run_gangs(admitted, homes, classes, now))

    async with call.context.planning.take(call.user):
        outcomes = await asyncio.to_thread(plan, _take_snapshot(call))
    return {"outcomes": [outcome.to_json() for outcome in outcomes]}


def parse_manifests(body: Any) -> list[Object]:
    """The body's `objects`. Raises BadRequest."""
    manifests = body.get("objects") if isinstance(body, dict) else None
    if not isinstance(manifests, list) or not manifests or not all(isinstance(o, dict) for o in manifests):
        raise BadRequest("the body must be an object with `objects`: a list of at least one manifest")
    if len(manifests) > _MAX_OBJECTS:
        raise BadRequest(f"{len(manifests)} objects were given; the limit is {_MAX_OBJECTS}")
    if unknown := next((str(name) for name in body if name not in _FIELDS), ""):
        hint = did_you_mean(unknown, _FIELDS) or f" Its fields are {' and '.join(_FIELDS)}."
        raise BadRequest(f"the body has a field {unknown[:_MAX_QUOTED]!r}, which there is not.{hint}")
    return manifests


def project_namespace(call: RestCall, body: dict[str, Any]) -> str:
    """The namespace of the body's project (`default` if it names none), for objects without one. Raises BadRequest."""
    name = str(body.get("project") or "default")
    project = call.context.cache.project(name)
    if project is None:
        raise BadRequest(unknown_project(call.context.cache, name))
    return project.namespace


async def _dry_run_create(call: RestCall, obj: Object, namespace: str) -> Object:
    """The object as the cluster would store it, by a dry run. Raises what the create would raise."""
    version, kind_name = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    kind = kinds.by_api_version(version, kind_name)
    if kind not in dry_run_gangs.SUPPORTED_KINDS:
        names = [k.name for k in dry_run_gangs.SUPPORTED_KINDS]
        raise BadRequest(
            f"rowlock creates no pods for {version} {kind_name}.{did_you_mean(kind_name, names)} Known: {', '.join(names)}"
        )
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        raise BadRequest(f"{kind_name}: metadata with a name is missing")
    placed = {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or namespace}}
    options = WriteOptions(dry_run=True, validation="Strict")
    try:
        return await call.context.api.create(kind, placed, options=options)
    except AlreadyExists:  # a job of this name exists: try another one like it
        renamed = {**placed, "metadata": {**placed["metadata"], "name": f"{meta.get('name')}-again"}}
        return await call.context.api.create(kind, renamed, options=options)
