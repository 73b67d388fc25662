"""The scheduler's own endpoints: the snapshot it plans from, and what would become of a job that nobody submitted.

A snapshot holds requests, labels of nodes, queues and names: no secrets and no environment, for the planner never
reads them. A question is answered by the real planner on a copy, in a thread, so that the server goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Conflict
from rowlock.objects import Object
from rowlock.scheduling.snapshot import Snapshot, dumps
from rowlock.scheduling.what_if import Outcome, Rehearsal
from rowlock.server.call import Call
from rowlock.workloads import hypothetical
from rowlock.workloads.fields import nearest

_MOST = 100
"""Objects of one question."""


def _snapshot(call: Call) -> Snapshot:
    """Raises Conflict where no scheduler of ours runs."""
    planned = call.room.planned
    if planned is None:
        raise Conflict("this cluster runs without rowlock's scheduler: start it without `--without scheduler`")
    return planned()


async def snapshot(call: Call) -> Response:
    call.only()
    return Response(dumps(_snapshot(call)), media_type="application/json")


async def what_if(call: Call) -> Any:
    """`{"objects": [...], "project": NAME}` → an outcome for each gang, in order."""
    call.only()
    body = await call.json()
    wanted, space = asked(body), home(call, body)
    found = [await _admitted(call, obj, space) for obj in wanted]
    homes = {objects.name(n): n for n in (await call.room.api.list(kinds.NAMESPACE)).items}
    page = await call.room.api.list(kinds.PRIORITY_CLASS)
    classes = {objects.name(c): int(c.get("value") or 0) for c in page.items}
    gangs = hypothetical.gangs(found, homes, classes, call.room.clock())
    copy = _snapshot(call)
    outcomes: list[Outcome] = await asyncio.to_thread(lambda: Rehearsal(copy).ask(gangs))
    return {"outcomes": [outcome.plain() for outcome in outcomes]}


def asked(body: Any) -> list[Object]:
    """The manifests of a question. Raises BadRequest."""
    found = body.get("objects") if isinstance(body, dict) else None
    if not isinstance(found, list) or not found or not all(isinstance(o, dict) for o in found):
        raise BadRequest("the body must be an object with `objects`: a list of at least one manifest")
    if len(found) > _MOST:
        raise BadRequest(f"{len(found)} objects were given; one question may have {_MOST}")
    return found


def home(call: Call, body: dict[str, Any]) -> str:
    """The project's namespace, for objects that name none."""
    wanted = str(body.get("project") or "default")
    project = call.room.catalog.project(wanted)
    if project is None:
        names = [p.name for p in call.room.catalog.projects().values()]
        raise BadRequest(f"project {wanted!r} was not found.{nearest(wanted, names)}")
    return project.namespace


async def _admitted(call: Call, obj: Object, space: str) -> Object:
    """The object as the cluster would store it: refused if it would be refused. Nothing is written."""
    version, word = str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    kind = kinds.by_api_version(version, word)
    if kind not in hypothetical.KNOWN:
        names = [k.name for k in hypothetical.KNOWN]
        raise BadRequest(f"kind {version} {word} starts nothing.{nearest(word, names)} Known: {', '.join(names)}")
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        raise BadRequest(f"{word}: metadata with a name is missing")
    placed = {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or space}}
    options = WriteOptions(dry_run=True, validation="Strict")
    try:
        return await call.room.api.create(kind, placed, options=options)
    except AlreadyExists:  # it was submitted before: asked is then about one more like it
        again = {**placed, "metadata": {**placed["metadata"], "name": f"{meta.get('name')}-again"}}
        return await call.room.api.create(kind, again, options=options)
