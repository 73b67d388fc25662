"""`POST /api/v1/notify/test`: one message now, and what its receiver answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.documents.notify_address import NotifyAddress, parse_notify_address
from rowlock.errors import BadRequest, TooManyRequests
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.scopes import unknown_project
from rowlock.rest.notifications.lanes import Lanes
from rowlock.rest.notifications.message import chat_text, signed_message
from rowlock.rest.notifications.receivers import post
from rowlock.rest.notifications.settings import judge_of_operator
from rowlock.rest.notifications.webhook import Judge, Undelivered
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.run_options.notify import parse_notify

_MOST_WAITING = 10
"""Notifications and tests of one project at a time with which another test is sent: two go out, and each may take ten seconds."""


async def send_test(call: RestCall) -> answers.NotifyTrial:
    """POST /notify/test: send a test to the address of `notify`, as a job of the project would; without it to that of `rowlock up
    --notify`, which needs the right to change nodes. The answer has the receiver's status and the beginning of its text, or a reason why
    nothing arrived. Raises BadRequest, Forbidden, TooManyRequests."""
    call.validate_query()
    body, errors = await call.json(), BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("projectId", "notify")
    wanted, project = parse_notify(top), top.text("projectId")
    errors.raise_if_any()
    way = _way_of_project(call, project, wanted) if wanted else _way_of_operator(call)
    return await send(call, way, project)


class Way(NamedTuple):
    """How a test goes: on whose behalf, where to, signed with which key."""

    namespace: str
    address: NotifyAddress
    key: str
    judge: Judge


def _way_of_project(call: RestCall, name: str, wanted: Mapping[str, str]) -> Way:
    cache = call.context.cache
    project = cache.project(name)
    if project is None:
        raise BadRequest(unknown_project(cache, name))
    call.require("create", kinds.PYTORCHJOB, project.namespace)
    address, judge = parse_notify_address(wanted["url"]), call.context.settings.notify.judge_of_job
    return Way(project.namespace, address, wanted.get("key", ""), judge)


def _way_of_operator(call: RestCall) -> Way:
    call.require("update", kinds.NODE)
    settings = call.context.settings.notify
    if settings.address is None:
        raise BadRequest(
            "there is no address: name one, as in `rowlock notify test https://HOST/PATH`, or start the server with --notify URL"
        )
    return Way("", settings.address, settings.key, judge_of_operator)


async def send(call: RestCall, way: Way, project: str) -> answers.NotifyTrial:
    """Send a test in the name of a project and the caller. Raises TooManyRequests."""
    context, text = call.context, f"This is a test of rowlock's notifications, by {call.user}."
    lanes, now = context.lanes or Lanes(context.clock), objects.micro_timestamp(context.clock())
    fields = {"text": chat_text(text), "id": f"test/{context.new_id()}", "event": "test", "at": now, "project": project}
    found: answers.NotifyTrial = {
        "target": way.address.public_form, "delivered": False, "status": None, "answer": "", "reason": "",
        "signed": bool(way.key),
    }  # fmt: skip
    if lanes.users_of(way.namespace) >= _MOST_WAITING:
        raise TooManyRequests(
            f"{_MOST_WAITING} notifications and tests of this project are on their way, and their receivers are slow; try again in half a minute"
        )
    try:
        async with lanes.connection(way.namespace):
            answer = await post(way.address, signed_message(fields, way.key), way.judge)
    except Undelivered as failure:
        return {**found, "reason": failure.reason}
    return {**found, "delivered": answer.is_good, "status": answer.status, "answer": answer.text}
