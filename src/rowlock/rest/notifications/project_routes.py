"""`/api/v1/org-unit/projects/{id}/notify`: where a project tells what happens to its jobs.

Who may change the project's Namespace sets it; it is judged as a job's address is. No answer has the address itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from rowlock import kinds, objects
from rowlock.answers import cluster as answers
from rowlock.answers import workloads as workload_answers
from rowlock.api import WriteOptions
from rowlock.documents.notify_address import MailAddress, parse_notify_address
from rowlock.errors import ApiError, BadRequest, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.notifications import project_address, trial
from rowlock.rest.notifications.project_address import ANNOTATION, ProjectAddress
from rowlock.rest.notifications.targets import NotifyTarget, UnusableAddress, read_project_target
from rowlock.rest.projects import find_project
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.notify import EVENTS, parse_notify_fields

log = logging.getLogger(__name__)
_OPTIONS = WriteOptions(manager="rowlock")
_TRIES = 5


async def show(call: RestCall) -> answers.ProjectNotify:
    """GET /org-unit/projects/{id}/notify: where the project tells what happens to its jobs, without what may be a password; `target` "" if
    nowhere. `problem` says why nothing is told although there is an address. Raises NotFound."""
    call.validate_query()
    project = find_project(call)
    return await _answer(call, project, call.context.cache.namespace(project.namespace))


async def change(call: RestCall) -> answers.ProjectNotify:
    """PUT /org-unit/projects/{id}/notify: tell `url` what happens to all jobs of the project from now on, or only what `on` has; `key`
    signs it. Needs the right to its Secrets too. Raises NotFound, BadRequest, Conflict."""
    call.validate_query()
    project, body, errors = find_project(call), await call.json(), BodyErrors()
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    fields = Fields("", body if isinstance(body, Mapping) else {}, errors)
    notify = parse_notify_fields(fields)
    _check_mailbox(call, fields, notify["url"])
    errors.raise_if_any()
    for verb in ("create", "delete"):
        call.require(verb, kinds.SECRET, project.namespace)
    context = call.context
    address, secret = project_address.make_address(
        notify, project.namespace, context.new_id(), context.new_id(), context.clock()
    )
    await context.api.create(kinds.SECRET, secret, options=_OPTIONS)
    try:
        namespace = await _write(call, project, address.to_annotation())
    except ApiError as refusal:
        if refusal.code < 500:  # else the address may have been set although the answer was lost
            await _delete_secret(call, project, address)
        raise
    return await _answer(call, project, namespace)


async def remove(call: RestCall) -> answers.ProjectNotify:
    """DELETE /org-unit/projects/{id}/notify: tell nobody any more, also not what waits to be told; right too if there is no address.
    Raises NotFound, Conflict."""
    call.validate_query()
    project = find_project(call)
    call.require("delete", kinds.SECRET, project.namespace)
    return await _answer(call, project, await _write(call, project, None))


async def send_test(call: RestCall) -> workload_answers.NotifyTrial:
    """POST /org-unit/projects/{id}/notify/test: send a test to the address of the project, as its jobs do. Raises NotFound, BadRequest,
    TooManyRequests."""
    call.validate_query()
    project = find_project(call)
    try:
        address = project_address.address_of(call.context.cache.namespace(project.namespace))
        if address is None:
            raise BadRequest(
                f"the project {project.name} tells nobody: `rowlock project notify {project.name} URL` names an address"
            )
        target = await _read(call, project, address)
    except (ValueError, UnusableAddress) as problem:
        raise BadRequest(f"{problem}; `rowlock project notify {project.name} URL` sets the address again") from None
    way = trial.Way(project.namespace, target.address, target.key, target.judge)
    return await trial.send(call, way, project.name)


def _check_mailbox(call: RestCall, fields: Fields, url: str) -> None:
    """Of a mailbox it is known at once whether the operator allows it."""
    with suppress(ValueError):  # reported already
        address = parse_notify_address(url)
        if isinstance(address, MailAddress) and (denial := call.context.settings.notify.judge_of_job(address, "")):
            fields.add_error(
                "url", "options", f"{denial}: the operator can allow it with `rowlock up --notify-allow @{address.domain}`."
            )  # fmt: skip


async def _write(call: RestCall, project: Project, text: str | None) -> Object:
    """Write the annotation (None: remove it), then delete the Secret of the one before. Returns the Namespace. Raises Conflict."""
    api = call.context.api
    for _ in range(_TRIES):
        old = await api.get(kinds.NAMESPACE, project.namespace, project.namespace)
        meta = {"resourceVersion": objects.meta(old)["resourceVersion"], "annotations": {ANNOTATION: text}}
        try:
            new = await api.patch(
                kinds.NAMESPACE, project.namespace, project.namespace, {"metadata": meta}, type="merge", options=_OPTIONS
            )  # fmt: skip
        except Conflict:
            continue
        with suppress(ValueError):
            if (before := project_address.address_of(old)) is not None:
                await _delete_secret(call, project, before)
        return new
    raise Conflict("the project is being changed by others all the time; try again")


async def _delete_secret(call: RestCall, project: Project, address: ProjectAddress) -> None:
    """Delete the Secret of an address that nobody uses. What was asked is done without that, too."""
    try:
        await call.context.api.delete(kinds.SECRET, project.namespace, address.secret)
    except NotFound:
        return
    except ApiError as error:
        log.warning("the Secret %s/%s is not used any more, and stays: %s", project.namespace, address.secret, error)


async def _read(call: RestCall, project: Project, address: ProjectAddress) -> NotifyTarget:
    """Read the address as the server does when it tells something, with its own rights. Raises UnusableAddress, ApiError."""
    context = call.context
    api = context.server_api or context.api
    return await read_project_target(api, project.namespace, address, context.settings.notify)


async def _answer(call: RestCall, project: Project, namespace: Object | None) -> answers.ProjectNotify:
    found: answers.ProjectNotify = {
        "projectName": project.name, "target": "", "on": [], "signed": False, "setAt": None, "problem": "",
    }  # fmt: skip
    try:
        address = project_address.address_of(namespace)
        if address is None:
            return found
        found |= {
            "target": address.shown, "on": list(address.events or EVENTS), "signed": address.is_signed,
            "setAt": objects.timestamp(address.since),
        }  # fmt: skip
        await _read(call, project, address)
    except (ValueError, UnusableAddress) as problem:
        found["problem"] = str(problem)
    except ApiError as error:
        found["problem"] = f"the cluster does not answer: {error.message}"
    return found
