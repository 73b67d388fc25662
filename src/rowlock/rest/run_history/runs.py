"""Runs over REST, rowlock's own: `/api/v1/runs` lists all recorded runs, `/api/v1/runs/{id}` shows one."""

from __future__ import annotations

import json
import math
from itertools import count
from typing import Any, cast

from rowlock import objects
from rowlock.answers import workloads as answers
from rowlock.archive import database, retention
from rowlock.archive.archive import Archive
from rowlock.archive.records import PhaseStep, RunRecord
from rowlock.errors import BadRequest, NotFound, Unsupported
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.run_history import past_logs
from rowlock.rest.run_history.past_workloads import PastRun, ask_archive, catch_up, find_past, is_visible, past_pods
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads import history, runai_json
from rowlock.workloads import pods as ranks
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.frameworks import checkpoints_owner, replica_specs
from rowlock.workloads.objects import CODE_ANNOTATION, COMMAND_ANNOTATION
from rowlock.workloads.run_options.marks import Marks, marks_from_json

_PARAMETERS = ("project", "name", "phase", "since", "tag", "search", "favourite", "limit", "offset")
_MAX_LIMIT = 500
_ROWS_PER_LOOK = 1_000
"""Runs read in one step."""
_PHASES = ("Creating", "Pending", "Initializing", "Running", "Degraded", "Stopping", "Stopped", "Resuming", "Completed", "Failed", "Deleting", "Deleted")  # fmt: skip


async def index(call: RestCall) -> Any:
    """GET /runs: every recorded run, also of deleted workloads, newest first. Raises BadRequest, Unsupported."""
    query = call.validate_query(*_PARAMETERS)
    archive = require_archive(call)
    call.flag("favourite")
    where, values = _conditions(query, call.context.clock())
    limit, offset = parse_count(query, "limit", 50), parse_count(query, "offset", 0)
    if not 1 <= limit <= _MAX_LIMIT:
        raise BadRequest(f"limit must be between 1 and {_MAX_LIMIT}, but is {limit}.")
    await catch_up(call, "*")
    runs = await _read_visible(call, where, values, limit + 1, offset)
    notes = await ask_archive(call, database.read_notes) or {}
    marks = await ask_archive(call, database.read_marks, [record.uid for record in runs[:limit]]) or {}
    listed = [header_json(record, marks_from_json(marks.get(record.uid, {}))) for record in runs[:limit]]
    body: dict[str, Any] = {"runs": listed}
    if len(runs) > limit:
        body["next"] = offset + limit
    body["cut"] = notes.get(retention.CUT_NOTE, "") if call.rights is None else ""
    body["problem"] = archive.problem if call.rights is None else ""
    return body


async def _read_visible(call: RestCall, where: str, values: list[Any], limit: int, offset: int) -> list[RunRecord]:
    """One page of the runs that the caller may list, read in steps to bound memory."""
    if call.rights is None:
        return await ask_archive(call, database.read_headers, where, values, limit=limit, offset=offset) or []
    namespaces = json.dumps(list(call.context.cache.projects()))
    where = f"{where} AND" if where else "WHERE"
    where, values = f"{where} namespace IN (SELECT value FROM json_each(?))", [*values, namespaces]
    visible: list[RunRecord] = []
    for start in count(0, _ROWS_PER_LOOK):
        page = await ask_archive(call, database.read_headers, where, values, limit=_ROWS_PER_LOOK, offset=start) or []
        found = [record for record in page if is_visible(call, record, "list")]
        visible += found[offset:][:limit]
        offset = max(0, offset - len(found))
        if len(page) < _ROWS_PER_LOOK or len(visible) >= limit:
            return visible[:limit]
    raise AssertionError("a list has an end")


def require_archive(call: RestCall) -> Archive:
    """The archive. Raises Unsupported where there is none."""
    if call.context.archive is None:
        raise Unsupported("this server keeps no archive of runs")
    return call.context.archive


def _conditions(query: dict[str, str], now: float) -> tuple[str, list[Any]]:
    terms: list[str] = []
    values: list[Any] = []
    for parameter, column in (("project", "project"), ("name", "name")):
        if text := query.get(parameter):
            terms.append(f"{column} GLOB ?" if "*" in text else f"{column} = ?")
            values.append(text.replace("[", "[[]") if "*" in text else text)
    if phase := query.get("phase", "").capitalize():
        if phase not in _PHASES:
            raise BadRequest(f"there is no phase {phase[:60]!r}.{did_you_mean(phase, _PHASES)}")
        terms.append("(phase = ? OR (? = 'Deleted' AND deleted IS NOT NULL))")
        values += [phase, phase]
    if text := query.get("since"):
        terms.append("created >= ?")
        values.append(now - parse_since(text))
    more, further = _marks_conditions(query)
    terms, values = [*terms, *more], [*values, *further]
    return ("WHERE " + " AND ".join(terms) if terms else ""), values


def _marks_conditions(query: dict[str, str]) -> tuple[list[str], list[Any]]:
    """The SQL conditions of the parameters `tag`, `search` and `favourite`, and their values."""
    terms: list[str] = []
    values: list[Any] = []
    tags, note = f"json_each({database.MARKS}, '$.tags')", f"json_extract({database.MARKS}, '$.note')"
    if tag := query.get("tag"):
        terms.append(f"uid IN ({database.MARKED} AND EXISTS (SELECT 1 FROM {tags} WHERE value = ?))")
        values.append(tag)
    if text := query.get("search"):
        marked = f"instr(lower({note}), lower(?)) OR EXISTS (SELECT 1 FROM {tags} WHERE instr(lower(value), lower(?)))"
        terms.append(f"(instr(lower(name), lower(?)) OR uid IN ({database.MARKED} AND ({marked})))")
        values += [text] * 3
    if query.get("favourite") == "true":
        terms.append(f"uid IN ({database.MARKED} AND json_extract({database.MARKS}, '$.favourite'))")
    return terms, values


def parse_since(text: str) -> float:
    """A number of seconds. Raises BadRequest."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or not text.isascii() or "_" in text:
        raise BadRequest(f"since must be a number of seconds, but is {text[:60]!r}.")
    return seconds


def parse_count(query: dict[str, str], name: str, default: int) -> int:
    """A whole number of the query. Raises BadRequest."""
    text = query.get(name) or str(default)
    if not objects.is_digits(text) or len(text) > 9:
        raise BadRequest(f"{name} must be a whole number no less than 0, but is {text[:60]!r}.")
    return int(text)


def header_json(record: RunRecord, marks: Marks) -> answers.RunHeader:
    """One entry of the list. `durationSeconds`: from submit to end, None for a running run."""
    ended = record.finished or record.deleted
    return {
        "id": record.id,
        "name": record.name,
        "projectName": record.project,
        "kind": record.kind,
        "createdAt": objects.timestamp(record.created),
        "finishedAt": objects.timestamp(record.finished) if record.finished else None,
        "deletedAt": objects.timestamp(record.deleted) if record.deleted else None,
        "phase": cast(answers.Phase, record.phase),
        "attempts": record.attempts,
        "verdict": record.verdict,
        "tags": list(marks.tags),
        "note": marks.note,
        "favourite": marks.favourite,
        "durationSeconds": round(ended - record.created, 3) if ended else None,
    }


async def show(call: RestCall) -> answers.Run:
    """GET /runs/{id}: one run: phases with exact times, ranks and their lives, verdict, command and code. Raises NotFound."""
    call.validate_query()
    run = await require_run(call, str(call.path["id"]))
    record, job = run.record, run.record.body["job"]
    lives = await past_logs.find_lives(call, record.uid)
    marks = await ask_archive(call, database.read_marks, [record.uid]) or {}
    return {
        **header_json(record, marks_from_json(marks.get(record.uid, {}))),
        "phases": [_phase_json(step) for step in run.phases],
        "ranks": _ranks_json(run, job, lives),
        "why": record.body.get("why"),
        "events": len(record.body.get("events") or ()),
        "ends": history.stops_of(history.count_repeats(record.body.get("events") or ())),
        "checkpointsOf": checkpoints_owner(job) or record.uid,
        "ran": what_ran(job),
        "manifest": {
            **{field: job.get(field) for field in ("apiVersion", "kind", "spec")},
            "metadata": _own_metadata(job),
        },
    }


def _own_metadata(job: Object) -> dict[str, Any]:
    """Labels and annotations of the submitter, without those of the server."""
    fields = ("name", "namespace", "labels", "annotations")
    return {field: value for field in fields if (value := objects.meta(job).get(field))}


async def require_run(call: RestCall, identifier: str) -> PastRun:
    """The current record of an existing or deleted workload's run, by id. Raises NotFound, Unsupported."""
    require_archive(call)
    await catch_up(call, call.context.cache.job_uid(identifier))
    run = await find_past(call, identifier)
    if run is None:
        raise NotFound(f"there is no run {identifier!r} in the archive. GET /api/v1/runs lists them.")
    return run


def _phase_json(step: PhaseStep) -> answers.RunPhase:
    return {"at": objects.micro_timestamp(step.at), "phase": step.phase, "message": step.message}


def _ranks_json(run: PastRun, job: Object, lives: list[past_logs.Life]) -> list[answers.RunRank]:
    """Every rank with its pods and its lives."""
    pods = past_pods(run) if run.pods else []
    names = sorted({life.pod for life in lives} | {pod["name"] for pod in pods})
    found: list[answers.RunRank] = []
    for stub in past_logs.stubs_by_rank(job, names):
        name = objects.name(stub)
        found.append(
            {
                "rank": ranks.rank_label(job, stub),
                "pod": name,
                "pods": [_pod_of_rank(pod) for pod in pods if pod["name"] == name],
                "attempts": _attempts_json(run, [life for life in lives if life.pod == name], job),
            }
        )
    return found


def _pod_of_rank(pod: answers.Pod) -> answers.RunPod:
    return {
        "id": pod["id"],
        "createdAt": pod["createdAt"],
        "completedAt": pod["completedAt"],
        "deletedAt": pod["deletedAt"],
        "nodeName": pod["nodeName"],
        "status": pod["status"],
        "exitCode": pod["exitCode"],
        "restarts": pod["restarts"],
    }


def _attempts_json(run: PastRun, lives: list[past_logs.Life], job: Object) -> list[answers.RunAttempt]:
    """The lives of one rank, with the times at which the recorder observed their begin and end, if it did."""
    found: list[answers.RunAttempt] = []
    for number, life in enumerate(past_logs.choose_container(lives, "", job), 1):
        seen = (run.record.body.get("lives") or {}).get(life.pod) or {}
        began, ended = seen.get(f"{life.pod_uid}/{life.number}") or (life.began, None)
        found.append(
            {
                "attempt": number,
                "startedAt": objects.micro_timestamp(began),
                "endedAt": objects.micro_timestamp(ended) if ended else None,
                "pod": life.pod_uid,
                "restart": life.number,
                "logBytes": life.record.size if life.record else None,
            }
        )
    return found


def what_ran(job: Object) -> dict[str, Any]:
    """Command, image, working directory, names of variables, and the submitter's code record."""
    container = runai_json.main_container(job)
    annotations = objects.annotations(job)
    variables = [str(v.get("name")) for v in container.get("env") or ()]
    sources = [
        f"{word}/{(source.get(key) or {}).get('name')}"
        for source in container.get("envFrom") or ()
        for key, word in (("secretRef", "secret"), ("configMapRef", "configmap"))
        if source.get(key)
    ]
    return {
        "commandLine": annotations.get(COMMAND_ANNOTATION, ""),
        "command": [*(container.get("command") or []), *(container.get("args") or [])],
        "image": container.get("image", ""),
        "workingDir": container.get("workingDir", ""),
        "environment": sorted(variables),
        "environmentFrom": sources,
        "replicas": {role: spec.get("replicas", 1) for role, spec in replica_specs(job).items()},
        "resources": container.get("resources") or {},
        "code": objects.written_json(annotations.get(CODE_ANNOTATION)),
        "type": runai_json.workload_type(job),
        "request": objects.written_json(annotations.get(REQUEST_ANNOTATION)),
    }
