"""Deleted workloads, restored from the archive's records: their routes answer as before the deletion.

Callers who may read jobs in a run's namespace may read the run, unless the namespace was replaced by another with the same
name. The owner may read all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.archive import database
from rowlock.archive.database import UnusableArchive
from rowlock.archive.records import PhaseStep, PodRecord, RunRecord
from rowlock.errors import Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.call import Endpoint, RestCall
from rowlock.rest.run_history.run_notes import without_deletion
from rowlock.workloads import history, list_query, runai_json
from rowlock.workloads import pods as ranks
from rowlock.workloads.figures.resources import allocated_resources
from rowlock.workloads.phase import pod_status
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload

T = TypeVar("T")
P = ParamSpec("P")
PastEndpoint = Callable[[RestCall, "PastRun"], Awaitable[Any]]
_ENDS = frozenset({"Completed", "Failed", "Stopped", "Deleted"})
_MAX_SEARCHED = 5000
"""Most runs that a search or filter reads, newest first."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """The record of a run and of its pods."""

    record: RunRecord
    pods: list[PodRecord]

    def workload(self) -> Workload:
        """The workload without pods, because deleted pods hold no resources."""
        body = self.record.body
        project = Project(**{**body["project"], "quota": Decimal(-1), "limit": Decimal(-1)})
        ended = self.record.finished or self.record.deleted or 0.0
        return Workload(
            body["job"] or {}, [], body.get("group"), project, str(body.get("cluster")), clock=lambda: ended
        )

    @property
    def phases(self) -> list[PhaseStep]:
        return [PhaseStep(*step) for step in self.record.body.get("phases") or ()]


def kind_of(record: RunRecord) -> Kind | None:
    """The kind of a record's job; None when it is no known kind."""
    return next((kind for kind in kinds.WORKLOADS if kind.name == record.kind), None)


async def ask_archive(
    call: RestCall, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """Ask the archive; None when there is no archive yet. Raises Unavailable when it cannot be read."""
    archive = call.context.archive
    if archive is None:
        return None
    try:
        return await archive.read(question, *args, **kwargs)
    except FileNotFoundError:
        return None
    except (sqlite3.Error, OSError, UnusableArchive) as error:
        raise Unavailable(f"the archive cannot be read now: {error}") from None


async def catch_up(call: RestCall, uid: str = "") -> None:
    """Before a read of the archive, let the recorder write recent deletions, and the current state of the run with this uid."""
    if call.context.catch_up is not None:
        await call.context.catch_up(uid)


def is_visible(call: RestCall, record: RunRecord, verb: str = "get") -> bool:
    """Whether the caller's rights in the run's namespace allow reading the run."""
    if call.rights is None:
        return True
    kind, namespace = kind_of(record), record.namespace
    current = call.context.cache.namespace(namespace)  # only if the caller may read the namespace
    if kind is None or current is None or objects.uid(current) != record.namespace_uid:
        return False
    return call.rights.allows(verb, kind, namespace, name=record.name if verb == "get" else "")


def _read_past(connection: sqlite3.Connection, uid: str) -> PastRun | None:
    record = next(database.read_runs(connection, "WHERE uid = ?", (uid,)), None)
    return None if record is None else PastRun(record, database.read_pods(connection, record.uid))


async def _find_uid(call: RestCall, identifier: str) -> str:
    """The job's uid of the run with this workload id or uid that the caller may see; "" if there is none. Anybody may write a label with
    another run's id: it hides that run from nobody. Of several runs, the newest in the namespace that had the id first."""
    where = "WHERE id = ? OR uid = ?"
    records = await ask_archive(call, database.read_headers, where, (identifier, identifier)) or []
    seen = [record for record in records if is_visible(call, record)]
    by_uid = next((record.uid for record in seen if record.uid == identifier), "")
    return by_uid or next((record.uid for record in seen if record.namespace == seen[-1].namespace), "")


async def find_past(call: RestCall, identifier: str) -> PastRun | None:
    """The recorded run with this workload id or job uid; None if there is none that the caller may see. Raises Forbidden if the
    caller lacks the route's right."""
    await catch_up(call)
    uid = await _find_uid(call, identifier)
    run = await ask_archive(call, _read_past, uid) if uid else None
    if run is None or not run.record.body.get("job") or not is_visible(call, run.record):
        return None
    if (kind := kind_of(run.record)) is not None:
        call.require_right(kind, run.record.namespace, run.record.name)
    return run


def or_past(live: Endpoint, past: PastEndpoint) -> Endpoint:
    """An endpoint that answers with `live` for an existing workload, else with `past` from the archive."""

    @wraps(live)
    async def serve(call: RestCall) -> Any:
        identifier = str(call.path["id"])
        if call.context.archive is None or call.context.cache.job_uid(identifier):
            return await live(call)
        run = await find_past(call, identifier)
        return await live(call) if run is None else await past(call, run)

    return serve


# ---------------------------------------------------------------- one workload


def _ran_for(run: PastRun) -> float | None:
    """Seconds, to the millisecond, from the start of the last Running phase to the end of the run. If no Running phase was observed, as
    for a job that fails at once on a real cluster, it counts from Initializing, else from the first container's start (whole seconds),
    else from the submit. None for a run that never ran or whose end was not observed."""
    has_run = run.record.phase == "Completed" or run.record.attempts > 0
    words = ("Running", "Initializing") if has_run else ("Running",)
    began = next((step.at for word in words for step in reversed(run.phases) if step.phase == word), None)
    if began is None and has_run:  # it ended before its pods were first observed
        submitted = run.phases[0].at if run.phases else None
        began = min(filter(None, map(_first_start, run.pods)), default=submitted)
    if began is None:
        return None
    ended = next((step.at for step in run.phases if step.at >= began and step.phase in _ENDS), None)
    return None if ended is None else round(max(ended - began, 0.001), 3)


def _first_start(pod: PodRecord) -> float:
    """When the pod's first recorded container started (Unix seconds); 0 if none is recorded."""
    statuses = objects.dig(pod.body, "status.containerStatuses", [])
    states = [fact for status in statuses for fact in (status.get("state") or {}).values() if isinstance(fact, dict)]
    return min(filter(None, (objects.seconds(fact.get("startedAt")) for fact in states)), default=0.0)


def past_json(run: PastRun) -> answers.Workload:
    """Run:ai's JSON of a deleted workload."""
    workload, record = run.workload(), run.record
    body = runai_json.workload_json(workload)
    last = run.phases[-1] if run.phases else PhaseStep(record.created, record.phase)
    reached = next((step for step in reversed(run.phases) if step.phase == record.phase), last)
    nodes = sorted({str(n) for pod in run.pods if (n := objects.dig(pod.body, "spec.nodeName"))})
    chief = ranks.chief_pod(pod.body for pod in run.pods)
    fields: answers.AdditionalFields = {
        **body["additionalFields"],
        "status": record.phase,
        "nodes": nodes,
        "chief": objects.name(chief) if chief else "",
        "pendingPods": 0,
        "ranForSeconds": _ran_for(run),
    }
    return {
        **body,
        "phase": cast(answers.Phase, record.phase),
        "phaseMessage": record.verdict or reached.message,
        "deletedAt": _time(record.deleted) or body["deletedAt"],
        "updatedAt": objects.timestamp(last.at),
        "phaseUpdatedAt": objects.timestamp(reached.at),
        "actionsSupport": {"delete": False, "suspend": False},
        "additionalFields": fields,
    }


def _time(at: float | None) -> str | None:
    return objects.timestamp(at) if at else None


async def show(call: RestCall, run: PastRun) -> Any:
    """A deleted workload, in the JSON of an existing one."""
    call.validate_query()
    detailed = runai_json.workload_detail_json(run.workload())
    return {**detailed, **past_json(run)}


def _events_of(run: PastRun) -> list[objects.Object]:
    """The run's events, oldest first, with repeated ones counted."""
    return history.count_repeats(sorted(run.record.body.get("events") or (), key=history.event_order))


async def show_events(call: RestCall, run: PastRun) -> Any:
    """The events of a deleted workload."""
    parsed = list_query.parse_query({"sortOrder": "desc", **call.query}, ("createdAt",))
    events = _events_of(run)[:: -1 if parsed.descending else 1]
    return list_query.list_body(
        "events", events, parsed, lambda event: history.event_json(event, str(run.record.body.get("cluster")))
    )


async def show_history(call: RestCall, run: PastRun) -> Any:
    """The phases and events of a deleted workload."""
    parsed = list_query.parse_query(call.query, ())
    records = history.recorded_history(run.phases, _events_of(run), run.workload().cluster)
    page, next_offset = list_query.page_of(records, parsed)
    return {"records": list(page)} if next_offset is None else {"records": list(page), "next": next_offset}


async def show_why(call: RestCall, run: PastRun) -> Any:
    """The diagnosis of a deleted workload."""
    call.validate_query()
    record = run.record
    told = {"incidents": [], "verdict": None, "ranks": [], "remarks": [], **(record.body.get("why") or {})}
    told["ends"] = history.stops_of(_events_of(run))
    return {**told, "name": record.name, "phase": record.phase, "sentence": record.verdict or "Nothing is known of it."}


async def show_pods(call: RestCall, run: PastRun) -> Any:
    """The pods of a deleted workload."""
    parsed = list_query.parse_query(call.query, (), other_parameters=("deleted",))
    if not list_query.asks_for_deleted({"deleted": "true", **call.query}):
        return {"pods": []}
    return list_query.list_body("pods", past_pods(run, parsed.search), parsed, dict)


def past_pods(run: PastRun, search: str = "") -> list[answers.Pod]:
    """Run:ai's JSON of the run's pods, sorted by rank, then by age."""
    body, job = past_json(run), run.record.body["job"]
    by_uid = {pod.pod_uid: pod for pod in run.pods}
    found: list[answers.Pod] = []
    for pod in ranks.sort_by_rank(pod.body for pod in run.pods if search in pod.name):
        gone = by_uid[objects.uid(pod)].deleted or run.record.deleted
        fields = ranks.pod_json(pod, body)
        fields["deletedAt"] = _time(gone) or fields["deletedAt"]
        fields["allocatedResources"] = allocated_resources([])
        if gone:
            fields["status"] = _last_status(pod)
        found.append({**fields, "ready": False, **ranks.rank_fields(job, pod)})
    return found


def _last_status(pod: Object) -> str:
    """The final status of a deleted pod; `Deleted` if it was last observed pending or running."""
    is_over = objects.phase(pod) in objects.FINAL_PHASES or ranks.completed_at(pod) is not None
    return pod_status(without_deletion(pod)) if is_over else "Deleted"


# ---------------------------------------------------------------- lists


async def deleted_workloads(call: RestCall, query: list_query.Query) -> list[answers.Workload]:
    """Run:ai's JSON of deleted workloads, filtered and sorted, newest first by default."""
    await catch_up(call)
    where, values = _narrow(query)
    where = f"WHERE deleted IS NOT NULL {where}"
    async with call.context.archive_reads.take(call.user):
        rows = await ask_archive(call, _read_rows, where, values) or []
    bodies = [body for record, body in rows if is_visible(call, record, "list")]
    return list(list_query.select_rows(bodies, query, _READERS))


def _narrow(query: list_query.Query) -> tuple[str, list[str]]:
    """The part of the query that SQL can express: (condition, values)."""
    columns = {"name": "name", "projectName": "project", "namespace": "namespace"}
    found = [f for f in query.filters if f.field in columns and f.operator == "=="]
    return "".join(f" AND {columns[f.field]} = ?" for f in found), [f.value for f in found]


def _read_rows(
    connection: sqlite3.Connection, where: str, values: list[str]
) -> list[tuple[RunRecord, answers.Workload]]:
    """Read the rows of a list. Runs in a thread, and holds one record's body at a time, because bodies are large."""
    rows: list[tuple[RunRecord, answers.Workload]] = []
    for record in database.read_runs(connection, where, values):
        if record.body.get("job"):
            rows.append((replace(record, body={}), past_json(PastRun(record, []))))
        if len(rows) >= _MAX_SEARCHED:
            break
    return rows


def _search_text(body: answers.Workload) -> str:
    words = (body["name"], body["projectName"], body["distributedFramework"], body["submittedBy"], body["type"])
    return "\n".join((*words, body["phase"])).lower()


_READERS: list_query.Readers[answers.Workload] = {
    **{name: lambda body, name=name: body.get(name) for name in list_query.WORKLOAD_FIELDS},  # type: ignore[misc]
    list_query.SEARCH: _search_text,
    "nodepool": lambda body: body["requestedNodePools"][0],
    "allocatedGPU": lambda body: 0,
}
