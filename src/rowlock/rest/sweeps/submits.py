"""POST /sweeps: everything about a sweep is checked as for a submit of its caller, and written once, sealed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rowlock import kinds, objects
from rowlock.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound, Unsupported
from rowlock.objects import Object
from rowlock.rest.assets import submits
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.scopes import require_project
from rowlock.rest.sweeps.learning import require_optuna
from rowlock.rest.sweeps.request import SweepRequest, parse_request
from rowlock.rest.sweeps.views import sweep_json
from rowlock.rest.workload_routes.job_creation import create_planned, submit_identity
from rowlock.rest.workload_routes.preview import preview, try_creation
from rowlock.rest.workloads import plan_workload
from rowlock.sweeps.parameters import VARIABLE_PREFIX
from rowlock.sweeps.sweep import DATA_KEY, LEARNING, MOST_BYTES, Sweep, SweepSubmitter, object_name, to_object
from rowlock.sweeps.template import (
    build_run,
    longest_run,
    longest_values,
    make_markers,
    mark_body,
    replace_text,
    reserved_variables,
)
from rowlock.workloads.objects import WORKLOAD_ID, SubmitPlan
from rowlock.workloads.projects import Project
from rowlock.workloads.submission import LONGEST_NAME, Submission, parse_submission

_RESUME = "rowlock.dev/resume-from"
_MOST_RUN, _MOST_PARAMETERS = 1_500_000, 4_000_000
"""Most characters of the job of a run, and of the parameters of all runs: texts that few characters of a command stand for."""
_AROUND_VALUE = 4
"""Characters that JSON puts around a value."""
_NO_UID = "00000000-0000-0000-0000-000000000000"


async def create(call: RestCall) -> Any:
    """POST /sweeps: submit a sweep; the server makes its runs. dryRun=true only shows the objects: the sweep and its first run. With the
    header Idempotency-Key a request may be repeated. Raises BadRequest, AlreadyExists, Forbidden, Unsupported, and errors of admission."""
    call.validate_query("dryRun", "requireImages")
    dry_run = call.flag("dryRun")
    require_sweeps(call)
    body = await call.json()
    async with call.context.drawing.take(call.user):
        request = await asyncio.to_thread(parse_request, body)
    _check_names(request)
    if request.search == LEARNING:
        await asyncio.to_thread(require_optuna)
    names = request.names
    project = _find_project(call, request)
    identity = submit_identity(call, project, "sweeps", request.name)
    markers = make_markers(identity, names)
    async with call.context.drawing.take(call.user):
        marked, used = await asyncio.to_thread(mark_body, request.workload, names, markers)
        await asyncio.to_thread(_check_commands, marked)
    _check_workload(request)
    expanded, references, check_policy = submits.expand(call, marked, "Distributed")
    submission = replace(parse_submission(expanded), assets=references)
    check_policy()
    _check_submission(submission)
    call.require("create", kinds.CONFIG_MAP, project.namespace)
    plan, remarks = await plan_workload(call, submission, project, identity, dry_run=dry_run)
    secrets, template = _rename_secrets(plan, markers.name, request.name)
    sweep = Sweep(
        request.name, identity, request.search, request.seed, request.max_parallel, names, request.grid,
        () if request.grid else request.points, template, markers, _submitter(call), request.command,
        request.metric, request.is_max, request.stop_first, request.samples, request.space,
    )  # fmt: skip
    config_map = to_object(sweep, project.namespace, call.context.settings.sweep_key.encode())
    _check_size(sweep, config_map)
    first = build_run(sweep, {**config_map, "metadata": {**config_map["metadata"], "uid": _NO_UID}}, 0)
    await try_creation(call, [*secrets, config_map, first])
    if unused := [name for name in names if name not in used]:
        call.notices.append(_describe_unused(unused))
    if dry_run:
        return preview(call, [*secrets, config_map, first], remarks)
    created = await _create(call, project, sweep, SubmitPlan(config_map, secrets))
    return JsonResult(202, sweep_json(project, created, sweep, {}, call.context.cache))


def require_sweeps(call: RestCall) -> None:
    """Raises Unsupported on a server that makes no runs of sweeps."""
    if not call.context.settings.sweep_key:
        raise Unsupported(
            f"this server makes no sweeps: {call.context.settings.no_sweeps}. Submit the runs one by one."
        )


def _find_project(call: RestCall, request: SweepRequest) -> Project:
    project = require_project(call, str(request.workload.get("projectId") or ""), "workload.projectId")
    if project.deleting:
        raise Conflict(f"project {project.name!r} is being deleted; nothing can be submitted to it")
    return project


def _check_names(request: SweepRequest) -> None:
    longest = f"{request.name}-{request.total - 1}"
    if len(longest) > LONGEST_NAME or not request.name[:1].isalpha():
        message = f"is a lower case letter, then letters, digits and '-': with the number of a run, such as {longest}, {LONGEST_NAME} characters at most."
        raise BadRequest(f"name: {message}", causes=[Cause("format", message, "name")])


def _check_workload(request: SweepRequest) -> None:
    """Raises BadRequest for what runs of a sweep cannot share."""
    if request.workload.get("useGivenNameAsPrefix"):
        message = "cannot be given: each run has the name of the sweep and its number."
        raise BadRequest(
            f"useGivenNameAsPrefix: {message}", causes=[Cause("unsupported", message, "workload.useGivenNameAsPrefix")]
        )
    if reserved := reserved_variables(request.workload):
        message = (
            f"{reserved[0]} is a variable that the sweep sets: names that begin with {VARIABLE_PREFIX} are its own."
        )
        raise BadRequest(message, causes=[Cause("unsupported", message, "workload.spec.environmentVariables")])


def _check_submission(submission: Submission) -> None:
    """The same for what a submit may ask for."""
    claims = [claim for role in (submission.master, submission.worker) for claim in role.storage.claims]
    problems = {
        "spec.storage.pvc": claims and "new claims are for one job each: make the claim first, and name it as an existing one.",
        "spec.environmentVariables": submission.user_credentials and "personal credentials are for one job each: put the values into a Secret of the project.",
        "notify": submission.own.notify
        and "runs of a sweep send no notifications yet: leave it out; `rowlock project notify` tells of all jobs of a project.",
        "after": submission.own.is_ordered and "runs of a sweep do not wait for jobs or times yet: leave after and startAfter out.",
        "spec.annotations": any(_RESUME in role.annotations for role in (submission.master, submission.worker))
        and "the runs of a sweep begin anew, each with checkpoints of its own: leave --resume-from out.",
    }  # fmt: skip
    for field, message in problems.items():
        if message:
            raise BadRequest(f"{field}: {message}", causes=[Cause("unsupported", str(message), f"workload.{field}")])


def _rename_secrets(plan: SubmitPlan, marker: str, name: str) -> tuple[list[Object], Object]:
    """The plan's Secrets, which all runs share, with the sweep's name in place of a run's; and the job that names them."""
    renamed = {objects.name(secret): objects.name(secret).replace(marker, object_name(name)) for secret in plan.secrets}
    secrets = [{**one, "metadata": {**one["metadata"], "name": renamed[objects.name(one)]}} for one in plan.secrets]
    return secrets, replace_text(plan.job, lambda text: renamed.get(text, text))


def _submitter(call: RestCall) -> SweepSubmitter:
    if call.rights is None:
        return SweepSubmitter(call.user, is_owner=True)
    return SweepSubmitter(call.rights.user_name, tuple(call.rights.user_groups))


def _check_commands(marked: Mapping[str, Any]) -> None:
    """Raises BadRequest for commands whose placeholders alone come to too much: `{a}` stands for more characters than it has."""
    size = len(json.dumps([marked.get("spec"), marked.get("masterSpec")]))
    if size > MOST_BYTES:
        message = f"with its parameters the workload comes to {size:,} bytes, and {MOST_BYTES:,} are allowed: shorten its command or its environment."
        raise BadRequest(message, causes=[Cause("max", message, "workload.spec")])


def _check_size(sweep: Sweep, config_map: Object) -> None:
    drawn_later = sweep.samples * sum(length + _AROUND_VALUE for length in longest_values(sweep))
    size = len(config_map["data"][DATA_KEY].encode()) + drawn_later
    run = longest_run(sweep)
    parameters = (
        drawn_later
        or sum(len(value) for point in sweep.points for value in point)
        or sum(sum(map(len, values)) * (sweep.total // len(values)) for values in sweep.grid)
    )
    problems = {
        f"the sweep comes to {size:,} bytes, and {MOST_BYTES:,} are allowed": size > MOST_BYTES,
        f"the longest run comes to {run:,} characters, and {_MOST_RUN:,} are allowed": run > _MOST_RUN,
        f"the parameters of all runs come to {parameters:,} characters, and {_MOST_PARAMETERS:,} are allowed": parameters
        > _MOST_PARAMETERS,
    }
    for problem, is_so in problems.items():
        if is_so:
            message = f"{problem}: shorten its values, its command or its environment."
            raise BadRequest(message, causes=[Cause("max", message, "parameters")])


def _describe_unused(unused: list[str]) -> str:
    names = ", ".join(f"{{{name}}}" for name in unused[:5])
    return f"The command does not have {names}: programs find the values in their environment ({VARIABLE_PREFIX}…)."


async def _create(call: RestCall, project: Project, sweep: Sweep, plan: SubmitPlan) -> Object:
    """Create the Secrets and the ConfigMap. Raises AlreadyExists for a sweep, or a run's job, of another submit."""
    cache, name = call.context.cache, object_name(sweep.name)
    try:
        there = await call.context.api.get(kinds.CONFIG_MAP, project.namespace, name)
    except NotFound:
        there = None
    if there is not None and objects.labels(there).get(WORKLOAD_ID) == sweep.id:
        return there
    if there is not None:
        raise AlreadyExists(f"there is a sweep {sweep.name} in this project already: delete it, or choose another name")
    for index in range(sweep.total):
        if cache.jobs_named(project.namespace, sweep.run_name(index)):
            message = f"there is a job {sweep.run_name(index)} already, and a run would have its name: delete it, or choose another name"
            raise AlreadyExists(message)
    return await create_planned(call, plan, has_gang=False)
