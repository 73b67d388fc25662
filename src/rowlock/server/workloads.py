"""Submit, list, show, suspend, resume, delete, wait: thin over `rowlock.workloads`, which decides, and the `Api`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rowlock import kinds, objects
from rowlock.api import DeleteOptions, WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.server.call import Answer, Call
from rowlock.server.catalog import FIELDS, Catalog, Row
from rowlock.workloads import pods as ranks
from rowlock.workloads import present, query, spec, story
from rowlock.workloads.fields import nearest
from rowlock.workloads.frameworks import FRAMEWORKS
from rowlock.workloads.objects import Author, to_job
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.possible import beyond_limit, impossible
from rowlock.workloads.present import Workload
from rowlock.workloads.projects import Project
from rowlock.workloads.spec import Submission

ACCEPTED = {"code": 202, "message": "Request has been accepted."}
MANAGER = WriteOptions(manager="rowlock")
_THINKING = 3.0
"""Seconds that a question waits for the scheduler's first word about a new workload."""
_LEAVING = 15.0
"""Seconds that a submit waits for a deleted workload of the same name to be gone."""
_LONGEST_PREFIX = 36
_LONGEST_WAIT = 60.0


def _kind(job: Object) -> Kind:
    return kinds.of(job)


def find(call: Call) -> Workload:
    """The workload that the path names. Raises NotFound."""
    return _find(call.room.catalog, str(call.path["id"]))


def _find(catalog: Catalog, word: str) -> Workload:
    found = catalog.workload(catalog.uid(word))
    if found is None:
        raise NotFound(f"Resource id not found: there is no workload {word!r}. GET /api/v1/workloads lists them.")
    return found


# ---------------------------------------------------------------- submit


async def submit(call: Call) -> Any:
    dry = call.only("dryRun").get("dryRun") == "true"
    asked = spec.read(await call.json())
    catalog = call.room.catalog
    project = _project(catalog, asked)
    _same_cluster(catalog, asked)
    _possible(catalog, asked, project)
    identity = call.room.ids()
    if asked.prefix:
        asked = _prefixed(asked, identity)
    source = "CLI" if "rowlock-cli" in call.request.headers.get("user-agent", "") else "Other"
    job = to_job(asked, project, Author(identity, call.user, source))
    if dry:
        return {"objects": [job]}
    await _name_free(catalog, project, asked.name)
    created = await call.room.api.create(_kind(job), job, options=WriteOptions(manager=MANAGER.manager))
    uid = objects.uid(created)
    await catalog.until(uid, lambda: bool(catalog.uid(uid)))
    workload = catalog.workload(uid) or Workload(created, [], None, project, catalog.cluster)
    return Answer(202, present.distributed(workload))


def _project(catalog: Catalog, asked: Submission) -> Project:
    found = catalog.project(asked.project)
    if found is None:
        names = [p.name for p in catalog.projects().values()]
        message = f"project {asked.project!r} was not found.{nearest(asked.project, names)}"
        hint = " `rowlock project list` shows them, `rowlock project create NAME` makes one."
        raise BadRequest(message + hint, causes=[Cause("unknown", message, "projectId")])
    if found.deleting:
        raise Conflict(f"project {found.name!r} is being deleted; nothing can be submitted to it")
    return found


def _same_cluster(catalog: Catalog, asked: Submission) -> None:
    if asked.cluster and asked.cluster != catalog.cluster:
        message = f"there is no cluster {asked.cluster!r}. This server has one: {catalog.cluster}."
        raise BadRequest(message, causes=[Cause("unknown", message, "clusterId")])


def _possible(catalog: Catalog, asked: Submission, project: Project) -> None:
    """Refuse what no node of this cluster could ever hold, nor the project's limit; a cluster without nodes is given the
    benefit of the doubt."""
    for role in (asked.worker, asked.master):
        cause = impossible(role.compute, catalog.nodes(), asked.run.pool)
        if cause is not None:
            raise BadRequest(cause.message, causes=[cause])
    cause = beyond_limit(asked, _path(catalog, project))
    if cause is not None:
        raise BadRequest(cause.message, causes=[cause])


def _path(catalog: Catalog, project: Project) -> list[Object]:
    """The project's queue and those above it."""
    path: list[Object] = []
    found = catalog.queue(project.queue)
    while found is not None and found not in path:
        path.append(found)
        found = catalog.queue(str(objects.dig(found, "spec.parentQueue") or ""))
    return path


def _prefixed(asked: Submission, identity: str) -> Submission:
    if len(asked.name) > _LONGEST_PREFIX:
        message = f"as a prefix {asked.name!r} may have {_LONGEST_PREFIX} characters, it has {len(asked.name)}."
        raise BadRequest(message, causes=[Cause("max", message, "name")])
    return replace(asked, name=f"{asked.name}-{identity.replace('-', '')[:12]}")


async def _name_free(catalog: Catalog, project: Project, name: str) -> None:
    """A name is taken by any kind of job. One that is leaving is waited for: delete, then submit, is no race."""

    def taken() -> list[Object]:
        return catalog.named(project.namespace, name)

    def staying() -> list[Object]:
        return [job for job in taken() if not objects.deleting(job)]

    if taken() and not staying():
        await catalog.until("", lambda: not taken() or bool(staying()), _LEAVING)
    if staying():
        raise AlreadyExists(f"the job {name} already exists, please delete it first (use 'runai delete {name}')")
    if taken():
        raise Conflict(f"the job {name} of before is still being deleted; try again in a moment")


# ---------------------------------------------------------------- one workload


async def show(call: Call) -> Any:
    call.only()
    return present.detailed(find(call))


async def show_distributed(call: Call) -> Any:
    call.only()
    return present.distributed(find(call))


async def delete(call: Call) -> Any:
    call.only("force")
    job = find(call).job
    uid, catalog = objects.uid(job), call.room.catalog
    options = DeleteOptions(propagation="Background", uid=uid)
    await call.room.api.delete(_kind(job), objects.namespace(job), objects.name(job), options=options)

    def leaving() -> bool:
        left = catalog.workload(uid)
        return left is None or objects.deleting(left.job)

    await catalog.until(uid, leaving)
    return Answer(202, ACCEPTED)


async def suspend(call: Call) -> Any:
    return await _switch(call, suspended=True)


async def resume(call: Call) -> Any:
    return await _switch(call, suspended=False)


async def _switch(call: Call, *, suspended: bool) -> Any:
    call.only()
    workload = find(call)
    job, phase = workload.job, workload.standing().phase
    word = "suspended" if suspended else "resumed"
    if phase in TERMINAL:
        raise Conflict(
            f"workload {objects.name(job)} has {phase.lower()} and cannot be {word}; submit it again instead"
        )
    patch = {"spec": {"runPolicy": {"suspend": suspended}}}
    kind, namespace, name = _kind(job), objects.namespace(job), objects.name(job)
    changed = await call.room.api.patch(kind, namespace, name, patch, type="merge", options=MANAGER)
    catalog, uid = call.room.catalog, objects.uid(job)
    await catalog.until(uid, lambda: _seen(catalog, uid, objects.revision(changed)))
    return Answer(202, ACCEPTED)


def _seen(catalog: Catalog, uid: str, revision: int) -> bool:
    workload = catalog.workload(uid)
    return workload is None or objects.revision(workload.job) >= revision


async def wait(call: Call) -> Any:
    """`?for=Completed,Failed&timeout=30`: answers when the phase is one of these, or as it stands after the timeout.

    A workload that is deleted meanwhile answers with the phase Deleted."""
    asked = call.only("for", "timeout")
    wanted = set(filter(None, asked.get("for", "Completed,Failed").split(",")))
    seconds = _seconds(asked.get("timeout", "30"))
    workload = find(call)
    catalog, uid = call.room.catalog, objects.uid(workload.job)

    def arrived() -> bool:
        return catalog.workload(uid) is None or catalog.standing(uid).phase in wanted

    await catalog.until(uid, arrived, min(seconds, _LONGEST_WAIT))
    left = catalog.workload(uid)
    return present.detailed(left) if left else {**present.detailed(workload), "phase": "Deleted", "phaseMessage": ""}


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        raise BadRequest(f"timeout must be a number of seconds, but is {text!r}.") from None


# ---------------------------------------------------------------- lists


async def index(call: Call) -> Any:
    asked = query.parse(call.query, also=("deleted",))
    if call.query.get("deleted") == "true":
        return {"workloads": []}  # deleted workloads are not kept: there is nothing beside the cluster's own objects
    catalog = call.room.catalog
    page, following = query.page(_selected(catalog, asked), asked)
    found = [workload for row in page if (workload := catalog.workload(row.uid))]
    bodies = [present.present(workload) for workload in found]
    await _say_what_cannot_be_made(call, found, bodies)
    return _listed("workloads", bodies, following)


async def _say_what_cannot_be_made(call: Call, found: Sequence[Workload], bodies: Sequence[dict[str, Any]]) -> None:
    """A workload that waits without the scheduler's word may have pods that the operator cannot make."""
    events: dict[str, list[Object]] = {}
    for workload, body in zip(found, bodies, strict=True):
        if body["phase"] == "Pending" and not body["phaseMessage"]:
            space = objects.namespace(workload.job)
            if space not in events:
                events[space] = (await call.room.api.list(kinds.EVENT, space)).items
            body["phaseMessage"] = story.unmade(workload.job, events[space])


def _selected(catalog: Catalog, asked: query.Query) -> Sequence[Row]:
    name = next((f.value for f in asked.filters if (f.field, f.operator) == ("name", "==")), None)
    return query.select(catalog.rows() if name is None else catalog.rows_named(name), asked, FIELDS)


def _listed(name: str, items: list[Any], following: int | None) -> dict[str, Any]:
    return {name: items} if following is None else {name: items, "next": following}


async def count(call: Call) -> Any:
    asked = query.parse(call.query, also=("deleted",))
    return {"count": len(_selected(call.room.catalog, asked))}


async def pods(call: Call) -> Any:
    asked = query.parse(call.query, (), also=("deleted",))
    workload = find(call)
    body = present.present(workload)
    found = [
        {**ranks.present(pod, body), "rank": ranks.tag(workload.job, pod)}
        for pod in workload.pods
        if asked.search in objects.name(pod)
    ]
    page, following = query.page(found, asked)
    return _listed("pods", list(page), following)


async def _events(call: Call, workload: Workload) -> list[Object]:
    """The workload's events, oldest first."""
    found = await call.room.api.list(kinds.EVENT, objects.namespace(workload.job))
    return sorted((e for e in found.items if story.concerns(e, workload)), key=story.event_order)


async def events(call: Call) -> Any:
    asked = query.parse({"sortOrder": "desc", **call.query}, ("createdAt",))
    workload = find(call)
    found = await _events(call, workload)
    page, following = query.page(found[::-1] if asked.descending else found, asked)
    return _listed("events", [story.present_event(e, workload.cluster) for e in page], following)


async def history(call: Call) -> Any:
    asked = query.parse(call.query, ())
    workload = find(call)
    page, following = query.page(story.history(workload, await _events(call, workload)), asked)
    return _listed("records", list(page), following)


async def explain(call: Call) -> Any:
    call.only()
    workload = find(call)
    if story.undecided(workload):  # just submitted: its pods come, the scheduler speaks, within a moment
        uid = objects.uid(workload.job)
        await call.room.catalog.until(uid, lambda: not story.undecided(find(call)), _THINKING)
        workload = find(call)
    return story.explanation(workload, await _events(call, workload))


async def why(call: Call) -> Any:
    """What happened to a workload, in one sentence, and what that rests on."""
    call.only()
    workload = find(call)
    inquest = call.room.inquest
    found = await inquest(workload.job) if inquest is not None else {"incidents": [], "verdict": None, "ranks": []}
    return story.why(find(call), found, await _events(call, workload))


# ---------------------------------------------------------------- dictionaries


async def priorities(call: Call) -> Any:
    return {"priorities": [{"id": n, "name": n, "value": v} for n, v in spec.PRIORITIES.items()]}


async def types(call: Call) -> Any:
    return {"types": [{"name": framework.kind.name, "category": "Train"} for framework in FRAMEWORKS]}
