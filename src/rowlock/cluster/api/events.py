"""Events of the group `events.k8s.io`: the core group's Events under other names. Newer recorders write these.

One object, two spellings, as on a real server: what comes in is decoded in its own spelling and renamed, what goes out
is renamed back; in between it is an ordinary Event. Only the top of an Event differs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.types import Message, Send

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.cluster.api import admission, bodies, requests, validation, verbs, wording
from rowlock.cluster.api.answers import encode
from rowlock.cluster.api.patches import Patches
from rowlock.cluster.api.requests import Call, Target
from rowlock.cluster.storage.store import Store
from rowlock.errors import ApiError, BadRequest, Cause, invalid
from rowlock.objects import Object

EVENT = kinds.NEWER_EVENT
GROUP, VERSION = EVENT.group, EVENT.version
_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEWER = {core: newer for newer, core in _CORE.items()}

Serve = Callable[[Call, Send], Awaitable[None]]


async def served(call: Call, send: Send, store: Store, rest: list[str], serve: Serve) -> None:
    """`rest` is what follows `/apis/events.k8s.io/v1`; `serve` answers the same for the core group."""
    core = requests.target_of("", VERSION, rest)
    if core.kind is not kinds.EVENT or core.subresource:
        raise requests.nowhere()
    _selector(call)
    there = store.core.current(kinds.EVENT, core.namespace, core.name) if core.name else None
    if call.method in ("POST", "PUT") and core.namespace:
        _rewritten(call, Target(EVENT, core.namespace, core.name), there)
    elif call.method == "PATCH":
        _patch(call, there)
    try:
        await serve(call, Renamed(send))
    except ApiError as error:
        if error.details.get("kind") == "events":
            text = re.sub(r'\bevents(?= "| is forbidden)', f"events.{GROUP}", error.message, count=1)
            error.message = text.replace('in API group ""', f'in API group "{GROUP}"')
            error.details = {**error.details, "group": GROUP}
        raise


def _selector(call: Call) -> None:
    """Field selectors know an Event's newer names here, and no others."""
    text = call.query.get("fieldSelector", "")
    terms = [re.match(r"\s*([^=!]*)(.*)", term, re.DOTALL) for term in sorted(text.split(","))] if text else []
    fields = [(term[1].strip(), term[2]) for term in terms if term]
    for name, _ in fields:
        if name and name not in _SELECTABLE and not name.startswith("regarding."):
            raise BadRequest(f"field label not supported: {name}")
    if fields:
        call.query["fieldSelector"] = ",".join(_field(name) + rest for name, rest in fields)


_SELECTABLE = frozenset({"metadata.name", "metadata.namespace", "reason", "type", "reportingController"})


def _field(name: str) -> str:
    first, dot, rest = name.partition(".")
    return _CORE.get(first, first) + dot + rest


# ---------------------------------------------------------------- what comes in


def _rewritten(call: Call, target: Target, there: Object | None) -> None:
    """The body of a create or an update, in the core group's spelling. Raises BadRequest, Invalid."""
    options = requests.write_options(call, "CreateOptions" if call.method == "POST" else "UpdateOptions")
    event = admission.decoded(EVENT, verbs.writable(call, target, options), options)
    core = {**_renamed(event, _CORE), "apiVersion": "v1"}
    causes = list(_causes(event) if there is None or call.method == "POST" else _changes(there, core))
    if causes:
        raise invalid("Event", objects.name(event), causes)
    _carry(call, core)


def _changes(there: Object, new: Object) -> Iterator[Cause]:
    """Once written in this spelling only an Event's series and its metadata may change."""
    for name in _FIXED:
        if (there.get(name) or None) != (new.get(name) or None):
            yield wording.immutable(name, _as_go_has_it(new.get(name)))


_FIXED = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
_REFERENCE = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")


def _as_go_has_it(value: Any) -> Any:
    """A reference as the real server shows one: its structure's own names, all of them."""
    if not isinstance(value, dict) or "component" in value or "host" in value:
        return value
    given = {name.lower(): text for name, text in value.items()}
    return {name: given.get(name.lower(), "") for name in _REFERENCE}


def _causes(event: Object) -> Iterator[Cause]:
    """What a real server asks of a new Event in this spelling, in the words of both."""
    core = {**_renamed(event, _CORE), "metadata": objects.meta(event)}
    yield from validation.event_causes(core, controller="reportingController")
    series = event.get("series")
    if series:
        if (series.get("count") or 0) < 2:
            yield wording.invalid_value("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield wording.required("series.lastObservedTime")
    if not event.get("eventTime"):
        yield wording.required("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield wording.invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if core.get(name):
            yield wording.invalid_value(name, "", "needs to be unset")
    if any((core.get("source") or {}).values()):
        yield wording.invalid_value("source", "", "needs to be unset")


def _patch(call: Call, there: Object | None) -> None:
    """The four kinds of patches name fields too. Raises BadRequest for a name that this spelling does not have."""
    kind = verbs.PATCHES.get(call.header(b"content-type").partition(";")[0].strip())
    if kind is None:
        return  # refused further on, as for every kind
    found = bodies.yaml_of(call.body) if kind == "apply" else bodies.patch_of(call.body, "")
    if kind == "json" and isinstance(found, list):
        core: Any = [_step(step) if isinstance(step, dict) else step for step in found]
    elif isinstance(found, dict):
        strange = next((name for name in found if name in _NEWER), None)
        if strange:
            raise BadRequest(f'Event in version "{VERSION}" cannot be handled as a Event: unknown field "{strange}"')
        version = {"apiVersion": "v1"} if found.get("apiVersion") == EVENT.api_version else {}
        core = {**_renamed(found, _CORE), **version}
    else:
        return
    _carry(call, core)
    if there is not None and kind != "apply":
        causes = list(_changes(there, Patches().apply(kinds.EVENT, there, core, kind, WriteOptions())))
        if causes:
            raise invalid("Event", objects.name(there), causes)


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    """One step of a JSON patch."""
    return {**step, **{name: _pointer(step[name]) for name in ("path", "from") if isinstance(step.get(name), str)}}


def _pointer(path: str) -> str:
    if not path.startswith("/"):
        return path
    first, slash, rest = path[1:].partition("/")
    if first in _NEWER:
        raise BadRequest(f'Event in version "{VERSION}" cannot be handled as a Event: unknown field "{first}"')
    return f"/{_CORE.get(first, first)}{slash}{rest}"


def _carry(call: Call, value: Any) -> None:
    """What is known of the body has been said: it goes on as plain JSON."""
    call.body = encode(value)
    if call.method != "PATCH":
        call.headers = {**call.headers, b"content-type": b"application/json"}
        call.query["fieldValidation"] = "Ignore"


def _renamed(event: Mapping[str, Any], names: Mapping[str, str]) -> Object:
    return {names.get(name, name): value for name, value in event.items()}


# ---------------------------------------------------------------- what goes out


class Renamed:
    """Passes an answer on in the newer spelling: an object, a list or table of them, or a watch line by line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message = {}
        self._length = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._length = any(name == b"content-length" for name, _ in message["headers"])
            if not self._length:  # a watch
                await self._send(message)
        elif not self._length:
            lines = message.get("body", b"").splitlines()
            await self._send({**message, "body": b"".join(_line(line) for line in lines)})
        else:  # one body: `answer` sends it whole
            body = _answered(message.get("body", b""))
            kept = [pair for pair in self._start["headers"] if pair[0] != b"content-length"]
            await self._send({**self._start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
            await self._send({**message, "body": body})


def _line(line: bytes) -> bytes:
    change = msgspec.json.decode(line)
    return encode({**change, "object": _shown(change["object"])}) + b"\n"


def _answered(body: bytes) -> bytes:
    return encode(_shown(msgspec.json.decode(body))) if body else body


def _newer(event: Mapping[str, Any]) -> Object:
    newer = _renamed(event, _NEWER)
    return {k: v for k, v in newer.items() if v != "" or k not in ("reportingController", "reportingInstance")}


def _shown(value: Any) -> Any:
    """Whatever the core group answered. What is no Event (a Status, metadata alone) stays as it is."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind == "Event" and version == "v1":
        return {**_newer(value), "apiVersion": EVENT.api_version}
    if kind == "EventList" and version == "v1":
        return {**value, "apiVersion": EVENT.api_version, "items": [_newer(item) for item in value["items"]]}
    if kind == "Status" and (value.get("details") or {}).get("kind") == "events":
        return {**value, "details": {**value["details"], "group": GROUP}}
    if kind == "Table":
        rows = [{**row, "object": _shown(row["object"])} if row.get("object") else row for row in value["rows"]]
        return {**value, "rows": rows}
    return value
