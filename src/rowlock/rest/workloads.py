"""Endpoints to submit, list, show, delete and wait for workloads; a thin layer over `rowlock.workloads`, which decides, and the `Api`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.api import DeleteOptions, WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound
from rowlock.gangs.growth import find_growth, waiting_notice
from rowlock.gangs.growth import refusal as growth_refusal
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.accounts.user_credentials import secrets_of_submit
from rowlock.rest.assets import submits
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.cluster_view.gpu_holders import holders_for
from rowlock.rest.event_index import failure_messages, workload_events
from rowlock.rest.informers import InformerCache
from rowlock.rest.inventory.scopes import unknown_project
from rowlock.rest.list_rows.known_words import refuse_unknown_words
from rowlock.rest.list_rows.selection import select_rows
from rowlock.rest.manifest_check import image_problems, machine_remarks
from rowlock.rest.run_history.checkpoint_use import reserve_checkpoints
from rowlock.rest.run_history.past_workloads import deleted_workloads
from rowlock.rest.workload_routes.gang_objects import dress_for_scheduler, require_queue
from rowlock.rest.workload_routes.job_creation import (
    create_planned,
    ensure_claims_are_free,
    find_earlier_try,
    submit_identity,
)
from rowlock.rest.workload_routes.pod_trial import check_pods
from rowlock.rest.workload_routes.preview import preview, try_creation
from rowlock.rest.workload_routes.start_order import find_awaited
from rowlock.workloads import history as workload_history
from rowlock.workloads import list_query, runai_json, submission
from rowlock.workloads import pods as ranks
from rowlock.workloads.feasibility import infeasible_cause, queue_limit_cause, too_many_pods_message
from rowlock.workloads.inventory.nodes import has_simulated_gpus
from rowlock.workloads.objects import SubmitPlan, Submitter, plan_submit
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION, V1_STATUSES, WorkloadStatus
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.retries import decided_sentence
from rowlock.workloads.runai_json import Workload
from rowlock.workloads.submission import Submission

ACCEPTED = {"code": 202, "message": "Request has been accepted."}
WRITE_OPTIONS = WriteOptions(manager="rowlock")
_SCHEDULER_TIMEOUT = 3.0
"""Seconds to wait for the scheduler's first decision about a new workload."""
_DELETION_TIMEOUT = 15.0
"""Seconds that a submit waits for a workload of the same name that is being deleted."""
_MAX_PREFIX_LENGTH = 36
_MAX_WAIT = 60.0
_MAX_QUOTED = 60
_WORKLOADS_PER_TURN = 32
"""Workloads of a list rendered before yielding to the event loop."""


def find_workload(call: RestCall) -> Workload:
    """The workload that the path names, if the caller has the route's right to it. Raises NotFound, Forbidden."""
    workload = lookup_workload(call.context.cache, str(call.path["id"]))
    job = workload.job
    call.require_right(kinds.by_object(job), objects.namespace(job), objects.name(job))
    return workload


def lookup_workload(cache: InformerCache, identifier: str) -> Workload:
    """The workload with this id, without checking the route's right. Raises NotFound."""
    workload = cache.workload(cache.job_uid(identifier))
    if workload is None:
        raise NotFound(f"Resource id not found: there is no workload {identifier!r}. GET /api/v1/workloads lists them.")
    return workload


# ---------------------------------------------------------------- submit


async def submit(call: RestCall) -> Any:
    """POST /workloads/distributed: create a job and its claims from Run:ai's body. dryRun=true only shows them; with
    requireImages=true the image must be on this machine. With the header Idempotency-Key a request may be repeated. Raises BadRequest,
    AlreadyExists, Conflict, and errors of admission."""
    call.validate_query("dryRun", "requireImages")
    body, references, check_policy = submits.expand(call, await call.json(), "Distributed")
    request = replace(submission.parse_submission(body), assets=references)
    check_policy()
    return await submit_workload(call, request, runai_json.distributed_workload_json)


async def submit_workload(call: RestCall, request: Submission, to_json: Callable[[Workload], Any]) -> Any:
    """Create the job of a parsed request and what belongs to it; answers 202 with the JSON of `to_json`. With dryRun=true only show the
    objects. Raises BadRequest, AlreadyExists, Conflict, and errors of admission."""
    dry_run = call.flag("dryRun")
    cache = call.context.cache
    project = _find_project(cache, request)
    request = replace(request, own=find_awaited(cache, request.own, project, call.context.settings.dialect))
    identity = submit_identity(call, project, request.framework.kind.plural, request.name)
    if request.is_name_prefix:
        request = _generate_name(request, identity)
    plan, remarks = await plan_workload(call, request, project, identity, dry_run=dry_run)
    job = plan.job
    if dry_run:
        await require_queue(call, job)
        await try_creation(call, plan.all_objects())
        return preview(call, plan.all_objects(), remarks)
    is_again = find_earlier_try(cache, job) is not None
    if not is_again:
        await ensure_name_is_free(cache, project, request.name)
    await ensure_claims_are_free(call, [claim for claim, _ in plan.claims])
    with nullcontext() if is_again else reserve_checkpoints(cache, call.context.reserved_checkpoints, job):
        await require_queue(call, job)
        created = await create_planned(call, plan)
    workload = cache.workload(objects.uid(created)) or Workload(created, [], None, project, cache.cluster)
    return JsonResult(202, to_json(workload))


async def plan_workload(
    call: RestCall, request: Submission, project: Project, identity: str, *, dry_run: bool
) -> tuple[SubmitPlan, list[str]]:
    """What a submit of the caller would create, checked but for its name, and remarks, which are also added to the call's notices. Raises
    BadRequest, Forbidden."""
    cache = call.context.cache
    _check_cluster(cache, request)
    _check_kind_is_served(cache, request.framework.kind)
    await _check_feasible(call, request, project)
    request = replace(request, registries=submits.registry_secrets(call, project))
    source = "CLI" if "rowlock-cli" in call.request.headers.get("user-agent", "") else "Other"
    call.require("create", request.framework.kind, project.namespace)
    credentials = secrets_of_submit(call, request, only_shown=dry_run)
    plan = plan_submit(request, project, Submitter(identity, call.user, source), credentials)
    job = await dress_for_scheduler(call, plan.job, lambda dialect, classes: dialect.dress(plan.job, request, classes))
    plan = replace(plan, job=job)
    if call.flag("requireImages") and (problems := await image_problems(call, kinds.by_object(job), job)):
        raise BadRequest(problems[0], causes=[Cause("unknown", problem, "spec.image") for problem in problems])
    await check_pods(call, job, request.body)
    remarks = machine_remarks(call, kinds.by_object(job), job)
    call.notices.extend(remarks)
    return plan, remarks


def _find_project(cache: InformerCache, request: Submission) -> Project:
    """The project of a submit. Raises BadRequest, and Conflict while it is being deleted."""
    project = cache.project(request.project)
    if project is None:
        message = unknown_project(cache, request.project)
        hint = " `rowlock project list` shows them, `rowlock project create NAME` makes one."
        raise BadRequest(message + hint, causes=[Cause("unknown", message, "projectId")])
    if project.deleting:
        raise Conflict(f"project {project.name!r} is being deleted; nothing can be submitted to it")
    return project


def _check_cluster(cache: InformerCache, request: Submission) -> None:
    if request.cluster and request.cluster != cache.cluster:
        message = f"there is no cluster {request.cluster!r}. This server has one: {cache.cluster}."
        raise BadRequest(message, causes=[Cause("unknown", message, "clusterId")])


def _check_kind_is_served(cache: InformerCache, kind: Kind) -> None:
    if cache.is_absent(kind):
        message = f"the cluster has no {kind.resource}: install Kubeflow's training operator, which brings the kind."
        raise BadRequest(message, causes=[Cause("unsupported", message, "distributedFramework")])


async def _check_feasible(call: RestCall, request: Submission, project: Project) -> None:
    """Raises BadRequest for a job that fits no node, exceeds a limit of its project's queues, or has more pods than the nodes can hold.
    Without nodes any size is accepted, and with a notice where a real cluster may grow."""
    cache = call.context.cache
    for role in (request.worker, request.master):
        cause = infeasible_cause(role.compute, cache.nodes(), request.options.pool)
        if cause is None:
            continue
        if call.context.settings.dialect is None:
            raise BadRequest(cause.message, causes=[cause])
        growth = await find_growth(call.context.api, cache.nodes(), cache.namespace(project.namespace))
        if not growth:
            cause = growth_refusal(cause, project.namespace)
            raise BadRequest(cause.message, causes=[cause])
        call.notices.append(waiting_notice(cause, growth))
        break
    cause = queue_limit_cause(request, _queue_path(cache, project))
    if cause is not None:
        raise BadRequest(cause.message, causes=[cause])
    embedded = call.context.settings.dialect is None
    if embedded and (message := too_many_pods_message(request.pod_count, cache.nodes())):
        raise BadRequest(message, causes=[Cause("max", message, "spec.numWorkers")])


def _queue_path(cache: InformerCache, project: Project) -> list[Object]:
    """The project's queue and its parents."""
    path: list[Object] = []
    queue = cache.queue(project.queue)
    while queue is not None and queue not in path:
        path.append(queue)
        queue = cache.queue(str(objects.dig(queue, "spec.parentQueue") or ""))
    return path


def _generate_name(request: Submission, identity: str) -> Submission:
    if len(request.name) > _MAX_PREFIX_LENGTH:
        message = f"the prefix {request.name!r} has {len(request.name)} characters; the limit is {_MAX_PREFIX_LENGTH}."
        raise BadRequest(message, causes=[Cause("max", message, "name")])
    return replace(request, name=f"{request.name}-{identity.replace('-', '')[:12]}")


async def ensure_name_is_free(cache: InformerCache, project: Project, name: str) -> None:
    """Raises AlreadyExists if a job of any kind has this name; Conflict if such a job is still being deleted after a wait."""

    def same_named_jobs() -> list[Object]:
        return cache.jobs_named(project.namespace, name)

    def remaining_jobs() -> list[Object]:
        return [job for job in same_named_jobs() if not objects.is_deleting(job)]

    if same_named_jobs() and not remaining_jobs():
        await cache.wait_until("", lambda: not same_named_jobs() or bool(remaining_jobs()), _DELETION_TIMEOUT)
    if remaining_jobs():
        raise AlreadyExists(f"the job {name} already exists, please delete it first (use 'runai delete {name}')")
    if same_named_jobs():
        raise Conflict(f"the job {name} with the same name is still being deleted; try again in a moment")


# ---------------------------------------------------------------- one workload


async def show(call: RestCall) -> Any:
    """GET /workloads/{id}: one workload of any type. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    body = runai_json.workload_detail_json(workload)
    await _fill_creation_failures(call, [workload], [body])
    extra, nodes = body["additionalFields"], call.context.cache.nodes()
    is_simulated = any(objects.name(node) in extra["nodes"] and has_simulated_gpus(node) for node in nodes)
    decided = decided_sentence(workload.job)
    fields = {**extra, "gpusSimulated": is_simulated, **({"retried": decided} if decided else {})}
    return {**body, "additionalFields": fields}


async def show_distributed(call: RestCall) -> Any:
    """GET /workloads/distributed/{id}: the workload with its specification as submitted. Raises NotFound."""
    call.validate_query()
    return runai_json.distributed_workload_json(find_workload(call))


async def delete(call: RestCall) -> Any:
    """DELETE /workloads/distributed/{id}: delete the job, and what it owns in the background; answers 202 once the job is marked as
    deleted. With force=true its pods are removed at once; their programs still have their grace. `by` names the requesting command, which is recorded with the
    run. Raises NotFound, BadRequest."""
    by = stopped_by(call.validate_query("force", "by"))
    is_forced, workload = call.flag("force"), find_workload(call)
    if is_forced:
        call.require("delete", kinds.POD, objects.namespace(workload.job))
    if by:
        patch = {"metadata": {"uid": objects.uid(workload.job), "annotations": {STOPPED_BY_ANNOTATION: by}}}
        with suppress(NotFound, Conflict):
            await call.context.api.patch(kinds.by_object(workload.job), *objects.key(workload.job), patch, type="merge")
    await delete_workload(call, workload)
    if is_forced:
        await _kill_pods(call, workload)
    return JsonResult(202, ACCEPTED)


def stopped_by(query: Mapping[str, str]) -> str:
    """The name of the requesting command, from the parameter `by`; "" if it is not given. Raises BadRequest."""
    text = query.get("by", "")
    if len(text) > 100 or not text.isprintable():
        raise BadRequest("by must be at most 100 printable characters: the command that suspends or deletes.")
    return text


async def _kill_pods(call: RestCall, workload: Workload) -> None:
    """Delete the objects of a deleted job's pods at once, without waiting for their programs, or for a lost node."""
    for pod in workload.pods:
        options = DeleteOptions(grace=0, uid=objects.uid(pod))
        with suppress(NotFound, Conflict):  # it is gone, or another pod has its name
            await call.context.api.delete(kinds.POD, objects.namespace(pod), objects.name(pod), options=options)


async def delete_workload(call: RestCall, workload: Workload) -> None:
    """Delete the job, and what it owns in the background; returns once the job is marked as deleted."""
    job = workload.job
    options = DeleteOptions(propagation="Background", uid=objects.uid(job))
    await call.context.api.delete(kinds.by_object(job), objects.namespace(job), objects.name(job), options=options)


async def wait(call: RestCall) -> Any:
    """GET /workloads/{id}/wait: wait until the phase is one of `for` (Completed,Failed), at most `timeout` seconds (30). Raises
    NotFound, BadRequest.

    `reachedPhase` is the phase of `for` that the workload has reached, null after the timeout. An elastic job that runs with
    its minimum counts as Running, although its phase is Degraded while its other pods are pending. The phase of a workload that
    is deleted meanwhile is Deleted."""
    params = call.validate_query("for", "timeout")
    phases = _parse_phases(params.get("for", "Completed,Failed"))
    seconds = _parse_timeout(params.get("timeout", "30"))
    workload = find_workload(call)
    cache, uid = call.context.cache, objects.uid(workload.job)

    def has_arrived() -> bool:
        return cache.workload(uid) is None or _reached_phase(cache.status(uid), phases) is not None

    await cache.wait_until(uid, has_arrived, min(seconds, _MAX_WAIT))
    if current := cache.workload(uid):
        reached = _reached_phase(cache.status(uid), phases)
        return {**runai_json.workload_detail_json(current), "reachedPhase": reached}
    gone = {"phase": "Deleted", "phaseMessage": "", "reachedPhase": "Deleted" if "Deleted" in phases else None}
    return {**runai_json.workload_detail_json(workload), **gone}


def _reached_phase(known: WorkloadStatus, phases: set[str]) -> str | None:
    """The one of `phases` that the workload has reached, or None. V1's status tells an elastic job that waits to grow from a broken one."""
    if known.phase in phases:
        return known.phase
    return "Running" if "Running" in phases and known.status == "Running" else None


def _parse_timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise BadRequest(f"timeout must be a number of seconds, but is {text[:_MAX_QUOTED]!r}.")
    return max(0.0, seconds)


def _parse_phases(text: str) -> set[str]:
    """The phases to wait for. Raises BadRequest for an unknown one, which would never be reached."""
    phases = set(filter(None, text.split(",")))
    known = {*V1_STATUSES, "Deleted"}
    if unknown := sorted(phases - known):
        raise BadRequest(f"for: {unknown[0][:_MAX_QUOTED]!r} is no phase; there are {', '.join(sorted(known))}.")
    return phases


# ---------------------------------------------------------------- lists


async def index(call: RestCall) -> Any:
    """GET /workloads: Run:ai's list, filtered, sorted and paged. Raises BadRequest for a parameter it does not know."""
    parsed_query = await _parse_list_query(call)
    if list_query.asks_for_deleted(call.query):
        gone, next_offset = list_query.page_of(await deleted_workloads(call, parsed_query), parsed_query)
        return _list_body("workloads", list(gone), next_offset)
    cache = call.context.cache
    page, next_offset = list_query.page_of(
        await select_rows(cache, parsed_query, call.context.sorted_rows), parsed_query
    )
    page_workloads: list[Workload] = []
    bodies: list[answers.Workload] = []
    for number, row in enumerate(page, 1):
        if (workload := cache.workload(row.uid)) is not None:
            page_workloads.append(workload)
            bodies.append(call.context.list_items.item_json(row, workload))
        if number % _WORKLOADS_PER_TURN == 0:
            await asyncio.sleep(0)
    await _fill_creation_failures(call, page_workloads, bodies)
    return _list_body("workloads", bodies, next_offset)


async def _parse_list_query(call: RestCall) -> list_query.Query:
    """The list's query. Raises BadRequest, also for a category or priority class that no workload has."""
    query = list_query.parse_query(call.query, other_parameters=("deleted",))

    async def count_rows(of: list_query.Query) -> int:
        if list_query.asks_for_deleted(call.query):
            return len(await deleted_workloads(call, of))
        return len(await select_rows(call.context.cache, of, call.context.sorted_rows))

    await refuse_unknown_words(call, query, count_rows)
    return query


async def _fill_creation_failures(
    call: RestCall, page_workloads: Sequence[Workload], bodies: Sequence[answers.Workload]
) -> None:
    """Add the reason to pending workloads whose pods the operator cannot create."""
    messages: dict[str, dict[str, str]] = {}
    for workload, body in zip(page_workloads, bodies, strict=True):
        if body["phase"] in ("Pending", "Creating") and not body["phaseMessage"]:
            namespace = objects.namespace(workload.job)
            if call.rights is not None and not call.rights.allows("list", kinds.EVENT, namespace):
                continue
            if namespace not in messages:
                context = call.context
                messages[namespace] = await failure_messages(context.api, context.events, namespace)
            body["phaseMessage"] = workload_history.create_failure_message(
                messages[namespace], objects.uid(workload.job), workload.part_uids
            )


def _list_body(name: str, items: list[Any], next_offset: int | None) -> dict[str, Any]:
    return {name: items} if next_offset is None else {name: items, "next": next_offset}


async def count(call: RestCall) -> Any:
    """GET /workloads/count: how many workloads the filters leave."""
    parsed_query = await _parse_list_query(call)
    if list_query.asks_for_deleted(call.query):
        return {"count": len(await deleted_workloads(call, parsed_query))}
    return {"count": len(await select_rows(call.context.cache, parsed_query, call.context.sorted_rows))}


async def pods(call: RestCall) -> Any:
    """GET /workloads/{id}/pods: the existing pods, each with its rank and node. Raises NotFound."""
    parsed_query = list_query.parse_query(call.query, (), other_parameters=("deleted",))
    workload = find_workload(call)
    body = runai_json.workload_json(workload)
    pod_items = [
        {
            **ranks.pod_json(pod, body, workload.card_memory(str(objects.dig(pod, "spec.nodeName") or ""))),
            **ranks.rank_fields(workload.job, pod),
        }
        for pod in (() if list_query.asks_for_deleted(call.query) else workload.pods)
        if parsed_query.search in objects.name(pod)
    ]
    page, next_offset = list_query.page_of(pod_items, parsed_query)
    return _list_body("pods", list(page), next_offset)


async def _workload_events(call: RestCall, workload: Workload) -> list[Object]:
    """The workload's events, oldest first, with repeated ones counted. Raises Forbidden if the caller may not list events."""
    may_list = call.rights is None or call.rights.allows("list", kinds.EVENT, objects.namespace(workload.job))
    found = await workload_events(call.context.api, call.context.events if may_list else None, workload)
    return workload_history.count_repeats(found)


async def events(call: RestCall) -> Any:
    """GET /workloads/{id}/events: the Events of the job, its pods and its PodGroup. Raises NotFound."""
    parsed_query = list_query.parse_query({"sortOrder": "desc", **call.query}, ("createdAt",))
    workload = find_workload(call)
    all_events = await _workload_events(call, workload)
    page, next_offset = list_query.page_of(all_events[::-1] if parsed_query.descending else all_events, parsed_query)
    return _list_body("events", [workload_history.event_json(e, workload.cluster) for e in page], next_offset)


async def history(call: RestCall) -> Any:
    """GET /workloads/{id}/history: the phases that the workload went through, with times. Raises NotFound."""
    parsed_query = list_query.parse_query(call.query, ())
    workload = find_workload(call)
    page, next_offset = list_query.page_of(
        workload_history.history(workload, await _workload_events(call, workload)), parsed_query
    )
    return _list_body("records", list(page), next_offset)


async def explain(call: RestCall) -> Any:
    """GET /workloads/{id}/explain: the scheduler's record of why the workload waits. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    if workload_history.is_undecided(workload):  # just submitted: the scheduler will decide soon
        uid = objects.uid(workload.job)
        await call.context.cache.wait_until(
            uid, lambda: not workload_history.is_undecided(find_workload(call)), _SCHEDULER_TIMEOUT
        )
        workload = find_workload(call)
    holders, sentence = await holders_for(call.context.cache, workload)
    found = workload_history.explanation(workload, await _workload_events(call, workload))
    return {**found, "holders": holders, "heldBy": sentence}


async def why(call: RestCall) -> Any:
    """GET /workloads/{id}/why: what happened to a workload, in one sentence, and the evidence for it. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    diagnose = call.context.diagnose
    diagnosis = (
        await diagnose(workload.job)
        if diagnose is not None
        else {"incidents": [], "verdict": None, "ranks": [], "remarks": []}
    )
    if call.context.observe_ranks is not None:
        diagnosis |= await call.context.observe_ranks(call.context.api, workload.job)
    workload = find_workload(call)
    found = workload_history.explain_workload(workload, diagnosis, await _workload_events(call, workload))
    _, held_by = await holders_for(call.context.cache, workload)
    return {**found, "sentence": f"{found['sentence']} {held_by}".strip()}
