"""Events of the group `events.k8s.io`: the core group's Events with other field names, which newer recorders use.

As on a real server there is one object with two representations: requests are decoded in this one and renamed, answers are
renamed back; in between it is a core Event. Only top-level fields differ.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
from starlette.types import Send

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.apiserver.admission import chain as admission
from rowlock.apiserver.endpoints import verbs
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import RewritingSend, encode
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.validation import objects as object_validation
from rowlock.documents import field_errors
from rowlock.errors import ApiError, BadRequest, Cause, invalid
from rowlock.objects import Object
from rowlock.storage.store import Store

EVENT = kinds.EVENTS_V1_EVENT
GROUP, VERSION = EVENT.group, EVENT.version
_CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEWER_NAMES = {core: newer for newer, core in _CORE_NAMES.items()}

CoreHandler = Callable[[Call, Send], Awaitable[None]]


async def serve_events(call: Call, send: Send, store: Store, rest: list[str], core_handler: CoreHandler) -> None:
    """Serve a request; `rest`: the path after `/apis/events.k8s.io/v1`; `core_handler` serves it for the core group."""
    core = requests.parse_target("", VERSION, rest)
    if core.kind is not kinds.EVENT or core.subresource:
        raise requests.path_not_found()
    call.require(requests.verb_of(call, core.name), Target(EVENT, core.namespace, core.name))
    call.is_authorized = True
    _translate_selector(call)
    existing = store.core.latest_object(kinds.EVENT, core.namespace, core.name) if core.name else None
    if call.method in ("POST", "PUT") and core.namespace:
        _rewrite_body(call, Target(EVENT, core.namespace, core.name), existing)
    elif call.method == "PATCH":
        _rewrite_patch(call, existing)
    try:
        await core_handler(call, RewritingSend(send, _rename_body))
    except ApiError as error:
        if error.details.get("kind") == "events":
            text = re.sub(r'\bevents(?= "| is forbidden)', f"events.{GROUP}", error.message, count=1)
            error.message = text.replace('in API group ""', f'in API group "{GROUP}"')
            error.details = {**error.details, "group": GROUP}
        raise


def _translate_selector(call: Call) -> None:
    """Rename the fields of a field selector, which may use only the newer names. Raises BadRequest."""
    text = call.query.get("fieldSelector", "")
    terms = [re.match(r"\s*([^=!]*)(.*)", term, re.DOTALL) for term in sorted(text.split(","))] if text else []
    fields = [(term[1].strip(), term[2]) for term in terms if term]
    for name, _ in fields:
        if name and name not in _SELECTABLE_FIELDS and not name.startswith("regarding."):
            raise BadRequest(f"field label not supported: {name}")
    if fields:
        call.query["fieldSelector"] = ",".join(_core_field(name) + rest for name, rest in fields)


_SELECTABLE_FIELDS = frozenset({"metadata.name", "metadata.namespace", "reason", "type", "reportingController"})


def _core_field(name: str) -> str:
    first, dot, rest = name.partition(".")
    return _CORE_NAMES.get(first, first) + dot + rest


# ---------------------------------------------------------------- request bodies


def _rewrite_body(call: Call, target: Target, existing: Object | None) -> None:
    """Rewrite the body of a create or update to the core group's names. Raises BadRequest, Invalid."""
    options = requests.write_options(call, "CreateOptions" if call.method == "POST" else "UpdateOptions")
    event = admission.decode_object(EVENT, verbs.decode_request_object(call, target, options), options)
    core = {**_rename_fields(event, _CORE_NAMES), "apiVersion": "v1"}
    causes = list(
        _create_causes(event) if existing is None or call.method == "POST" else _update_causes(existing, core)
    )
    if causes:
        raise invalid("Event", objects.name(event), causes)
    _replace_body(call, core)


def _update_causes(existing: Object, new: Object) -> Iterator[Cause]:
    """Through this group only the series and metadata of an existing Event may change."""
    for name in _IMMUTABLE_FIELDS:
        if (existing.get(name) or None) != (new.get(name) or None):
            yield field_errors.immutable_field(name, new.get(name))


_IMMUTABLE_FIELDS = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
    "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip


def _create_causes(event: Object) -> Iterator[Cause]:
    """A real server's checks of a new Event in this group, with the messages of both groups."""
    core = {**_rename_fields(event, _CORE_NAMES), "metadata": objects.meta(event)}
    for cause in object_validation.object_causes(kinds.EVENT, core):
        renamed = cause.field == "reportingComponent"
        yield Cause(cause.reason, cause.message, "reportingController") if renamed else cause
    series = event.get("series")
    if series:
        if (series.get("count") or 0) < 2:
            yield field_errors.invalid_value("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield field_errors.required_value("series.lastObservedTime")
    if not event.get("eventTime"):
        yield field_errors.required_value("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield field_errors.invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        if core.get(name):
            yield field_errors.invalid_value(name, "", "needs to be unset")
    if any((core.get("source") or {}).values()):
        yield field_errors.invalid_value("source", "", "needs to be unset")


def _rewrite_patch(call: Call, existing: Object | None) -> None:
    """Rename the fields in a patch of any type. Raises BadRequest for a field that this group does not have."""
    kind = verbs.PATCH_TYPES.get(call.header(b"content-type").partition(";")[0].strip())
    if kind is None:
        return  # refused later, as for every kind
    patch = request_body.yaml_of(call.body) if kind == "apply" else request_body.patch_of(call.body, "")
    if kind == "json" and isinstance(patch, list):
        core: Any = [_rewrite_step(step) if isinstance(step, dict) else step for step in patch]
    elif isinstance(patch, dict):
        core_name = next((name for name in patch if name in _NEWER_NAMES), None)
        if core_name:
            raise BadRequest(f'Event in version "{VERSION}" cannot be handled as a Event: unknown field "{core_name}"')
        version = {"apiVersion": "v1"} if patch.get("apiVersion") == EVENT.api_version else {}
        core = {**_rename_fields(patch, _CORE_NAMES), **version}
    else:
        return
    _replace_body(call, core)
    if existing is not None and kind != "apply":
        causes = list(_update_causes(existing, Patcher().apply(kinds.EVENT, existing, core, kind, WriteOptions())))
        if causes:
            raise invalid("Event", objects.name(existing), causes)


def _rewrite_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the fields in one operation of a JSON patch."""
    return {
        **step,
        **{name: _rewrite_pointer(step[name]) for name in ("path", "from") if isinstance(step.get(name), str)},
    }


def _rewrite_pointer(path: str) -> str:
    if not path.startswith("/"):
        return path
    first, slash, rest = path[1:].partition("/")
    if first in _NEWER_NAMES:
        raise BadRequest(f'Event in version "{VERSION}" cannot be handled as a Event: unknown field "{first}"')
    return f"/{_CORE_NAMES.get(first, first)}{slash}{rest}"


def _replace_body(call: Call, value: Any) -> None:
    """Replace the body by plain JSON. Unknown fields have been reported already, so field validation is off."""
    call.body = encode(value)
    if call.method != "PATCH":
        call.headers = {**call.headers, b"content-type": b"application/json"}
        call.query["fieldValidation"] = "Ignore"


def _rename_fields(event: Mapping[str, Any], names: Mapping[str, str]) -> Object:
    return {names.get(name, name): value for name, value in event.items()}


# ---------------------------------------------------------------- what goes out


def _rename_body(body: bytes) -> bytes:
    return encode(_rename_object(msgspec.json.decode(body))) if body else body


def _newer_event(event: Mapping[str, Any]) -> Object:
    newer = _rename_fields(event, _NEWER_NAMES)
    return {k: v for k, v in newer.items() if v != "" or k not in ("reportingController", "reportingInstance")}


def _rename_object(value: Any) -> Any:
    """Rename the Events in an answer of the core group, also in a watch line. Other objects stay, apart from a Status's group."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None and "object" in value:
        return {**value, "object": _rename_object(value["object"])}
    if kind == "Event" and version == "v1":
        return {**_newer_event(value), "apiVersion": EVENT.api_version}
    if kind == "EventList" and version == "v1":
        return {**value, "apiVersion": EVENT.api_version, "items": [_newer_event(item) for item in value["items"]]}
    if kind == "Status" and (value.get("details") or {}).get("kind") == "events":
        return {**value, "details": {**value["details"], "group": GROUP}}
    if kind == "Table":
        rows = [{**row, "object": _rename_object(row["object"])} if row.get("object") else row for row in value["rows"]]
        return {**value, "rows": rows}
    return value
