"""The verbs over HTTP: get, list, create, update, patch, delete, deletecollection, from a Call to an answer.

The semantics of writes are in the store, and checks in admission. Objects that the store holds encoded are sent without
encoding them again.
"""

from __future__ import annotations

import time
from importlib import resources
from typing import Any

from msgspec import structs
from starlette.types import Send

from rowlock import kinds, objects
from rowlock.api import Page, PatchType, WriteOptions
from rowlock.apiserver.admission import chain as admission
from rowlock.apiserver.admission.chain import DecodingError, decode_object
from rowlock.apiserver.endpoints import list_answers
from rowlock.apiserver.endpoints.list_answers import parse_include_object
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer, answer_object
from rowlock.apiserver.patch import patches
from rowlock.apiserver.patch.patches import check_meta_types
from rowlock.apiserver.printers import tables
from rowlock.apiserver.schema.json_errors import unmarshal_error
from rowlock.authorization.user_rights import UserRights
from rowlock.documents import field_errors
from rowlock.errors import BadRequest, Conflict, Invalid, Unsupported, UnsupportedMediaType, conflict
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.selectors import FieldSelector, Selector, parse_fields, parse_labels
from rowlock.storage import lifecycle, read_verbs
from rowlock.storage.store import Store

PATCH_TYPES: dict[str, PatchType] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_SELECTABLE_FIELDS = {
    resource: frozenset(fields)
    for resource, *fields in map(
        str.split, resources.files(__package__).joinpath("selectable_fields.txt").read_text().splitlines()
    )
}
"""Resource → fields for field selectors other than name and namespace; source: each kind's conversion of field labels."""


def parse_selectors(call: Call, kind: Kind) -> tuple[Selector, FieldSelector]:
    """The label and field selector of a request. Raises BadRequest with upstream's message."""
    labels, fields = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
    if not labels and not fields:
        return Selector(), FieldSelector()
    parsed = parse_labels(labels), parse_fields(fields)
    field_errors.check_selector(parsed[0])
    supported = _META_FIELDS | _SELECTABLE_FIELDS.get(kind.resource, frozenset())
    has_own_fields = kind.resource in _SELECTABLE_FIELDS or kind.custom
    if not kind.namespaced and has_own_fields:
        supported -= {"metadata.namespace"}
    for term in parsed[1].terms:
        if term.key not in supported:
            if has_own_fields:
                raise BadRequest(f"field label not supported: {term.key}")
            raise BadRequest(f'"{term.key}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    return parsed


# ---------------------------------------------------------------- reads


async def get(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.READ_PARAMETERS)
    form, kind = requests.negotiate_form(call.header(b"accept")), target.kind
    _check_revision(call, store)
    stored = None if form else store.get_encoded(kind, target.namespace, target.name)
    if stored is not None:
        return await answer(send, stored, warnings=call.warnings)
    obj = await store.get(kind, target.namespace, target.name)
    await answer_object(send, transform_object(call, kind, obj, form), warnings=call.warnings)


def transform_object(call: Call, kind: Kind, obj: Object, form: str) -> Object:
    """One object in the requested form: a Table, its metadata, or itself."""
    if form == "Table":
        result = tables.table(kind, [obj], time.time(), include=parse_include_object(call))
        result["metadata"] = {"resourceVersion": objects.meta(obj).get("resourceVersion", "")}
        return result
    return tables.partial_metadata(obj) if form else obj


def _check_revision(call: Call, store: Store) -> None:
    """Raise Timeout when the requested `resourceVersion` is newer than the store's."""
    revision = requests.parse_revision(call)
    if revision is not None and revision > store.revision:
        raise requests.revision_too_large(revision, store.revision)


async def list_(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.LIST_PARAMETERS)
    page = await read_page(call, store, target)
    await list_answers.answer_list(call, send, store, target, page)


async def read_page(call: Call, store: Store, target: Target) -> Page:
    labels, fields = parse_selectors(call, target.kind)
    call.number("timeoutSeconds")
    limit, token = call.number("limit") or 0, call.query.get("continue", "")
    match, revision = call.query.get("resourceVersionMatch", ""), _list_revision(call)
    requests.check_list_options(call, revision)
    if token and revision:
        raise BadRequest("specifying resource version is not allowed when using continue")
    _check_revision(call, store)
    if match == "Exact" and revision and not token and revision != store.revision:
        limit = limit or requests.PAGE_LIMIT
        token = read_verbs.encode_token(revision, objects.Key("", ""))
    limit = min(max(limit, 0), requests.PAGE_LIMIT)  # a negative limit means no limit
    if limit or token:
        return await store.list(target.kind, target.namespace, labels=labels, fields=fields, limit=limit, token=token)
    return await store.list(target.kind, target.namespace, labels=labels, fields=fields)


def _list_revision(call: Call) -> int | None:
    try:
        return requests.parse_revision(call)
    except Invalid as error:
        raise BadRequest(f"invalid resource version: {error.message}") from None


# ---------------------------------------------------------------- writes


def _reviewed_options(call: Call, kind: Kind, name: str) -> WriteOptions:
    """The options of a write, with checks that its user grants no more rights than their own, and names no other project's queue."""
    options = requests.write_options(call, name)
    if call.user.is_master:
        return options
    rights = UserRights(call.authorizer, call.user)
    return structs.replace(options, review=rights.escalation_review(kind), may_use_queue=rights.may_use_queue)


async def create(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.WRITE_PARAMETERS)
    if target.kind.namespaced and not target.namespace:
        raise Unsupported("the server does not allow this method on the requested resource")
    options = _reviewed_options(call, target.kind, "CreateOptions")
    obj = decode_request_object(call, target, options)
    if obj.get("status"):
        _check_unused(target.kind, obj, options, "status")
    stored = await store.create(target.kind, obj, options=options)
    await _send_stored(call, send, store, target.kind, stored, code=201)


async def update(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.WRITE_PARAMETERS)
    options = _reviewed_options(call, target.kind, "UpdateOptions")
    obj = decode_request_object(call, target, options)
    name = objects.name(obj)
    if name != target.name:
        _check_unused(target.kind, obj, options)
        if name:
            raise BadRequest(lifecycle.name_mismatch_message(name, target.name))
        raise BadRequest(lifecycle.missing_name_message(target.name))
    current = store.core.latest_object(target.kind, target.namespace, target.name)
    if current is None:
        _check_unused(target.kind, obj, options)
        call.require("create", Target(target.kind, target.namespace, target.name))
        stored = await _create_on_update(store, target, obj, options)
        return await _send_stored(call, send, store, target.kind, stored, code=201)
    if obj.get("status") and not target.subresource:
        _check_unused(target.kind, obj, options, "status")
    try:
        if (requested_uid := objects.uid(obj)) and requested_uid != objects.uid(current):
            raise _uid_conflict(target, requested_uid, objects.uid(current))
        lifecycle.require_revision(target.kind, target.name, obj)
        stored = await store.update(target.kind, obj, subresource=target.subresource, options=options)
    except (Conflict, Invalid):
        _check_unused(target.kind, obj, options)  # a decoding error takes precedence
        raise
    await _send_stored(call, send, store, target.kind, stored)


async def _create_on_update(store: Store, target: Target, obj: Object, options: WriteOptions) -> Object:
    """Handle an update of a missing object: create it if its kind allows that. Raises NotFound, Conflict."""
    service = target.kind is kinds.SERVICE and target.subresource == "status"
    if not service and (target.subresource or target.kind not in _CREATE_ON_UPDATE_KINDS):
        return await store.update(target.kind, obj, subresource=target.subresource, options=options)
    if requested_uid := objects.uid(obj):
        raise _uid_conflict(target, requested_uid, "")
    if service:
        raise admission.missing_service_error(obj)
    return await store.create(target.kind, obj, options=options, from_post=False)


def _uid_conflict(target: Target, requested_uid: str, current_uid: str) -> Conflict:
    """The error for an update that states another uid than the object has."""
    why = f"Precondition failed: UID in precondition: {requested_uid}, UID in object meta: {current_uid}"
    return conflict(target.kind.plural, target.name, why, target.kind.group)


_CREATE_ON_UPDATE_KINDS = frozenset({kinds.EVENT, kinds.LEASE, kinds.SERVICE, *kinds.RBAC})
"""Kinds of which a real server creates an object when an update finds none."""


def _check_unused(kind: Kind, obj: Object, options: WriteOptions, part: str = "") -> None:
    """Decode what the write ignores (a status, an update of a missing object), for errors and warnings. Raises DecodingError."""
    unused_options = WriteOptions(validation=options.validation)
    decode_object(kind, obj, unused_options)
    options.warnings.extend(
        warning for warning in unused_options.warnings if warning.startswith(f'unknown field "{part}')
    )


def decode_request_object(call: Call, target: Target, options: WriteOptions) -> Object:
    """The body as an object for the store. Raises BadRequest."""
    try:
        value = _parse_body(call, target.kind, options)
    except request_body.JsonParseError as error:
        raise requests.unrecognised_object(target.kind, error.message) from None
    obj = requests.object_for_target(call, target, value)
    _check_meta(target.kind, obj["metadata"])
    return obj


def _parse_body(call: Call, kind: Kind, options: WriteOptions) -> Any:
    media = call.header(b"content-type").partition(";")[0].strip().lower()
    if options.validation != "Ignore" and media in ("", "application/json"):
        value, duplicates = request_body.decode_strict_json(call.body)
        _report_duplicates(kind, duplicates, options)
        return value
    return request_body.decode_body(call)


def _report_duplicates(kind: Kind, duplicates: list[str], options: WriteOptions) -> None:
    problems = [f'duplicate field "{path}"' for path in duplicates]
    if problems and options.validation == "Strict":
        raise DecodingError(kind, "strict decoding error: " + ", ".join(problems))
    options.warnings.extend(problems)


def _check_meta(kind: Kind, meta: dict[str, Any]) -> None:
    """Check the types in the metadata, which is used before admission decodes the object. Raises DecodingError."""
    if not _is_plain_meta(meta):
        check_meta_types(kind, meta)


def _is_plain_meta(meta: dict[str, Any]) -> bool:
    """Whether the metadata has only names, labels and annotations, all strings, as most objects do: a fast check."""
    for field, value in meta.items():
        if field in _TEXTS:
            if type(value) is not str:
                return False
        elif field not in _MAPS or type(value) is not dict or not all(type(text) is str for text in value.values()):
            return False
    return True


_TEXTS, _MAPS = frozenset({"name", "generateName", "namespace"}), frozenset({"labels", "annotations"})


async def patch(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.PATCH_PARAMETERS)
    media = call.header(b"content-type").partition(";")[0].strip()
    kind = PATCH_TYPES.get(media)
    if kind is None:
        raise UnsupportedMediaType("415: Unsupported Media Type")
    if kind == "strategic" and target.kind.custom:
        raise UnsupportedMediaType(patches.UNKNOWN_FORMAT)
    if kind != "apply" and call.flag("force"):
        text = "Forbidden: may not be specified for non-apply patch"
        raise requests.invalid_option("PatchOptions", "force", text)
    options = _reviewed_options(call, target.kind, "PatchOptions")
    if kind == "apply" and not call.query.get("fieldManager"):
        options = structs.replace(options, manager="")
    body = _patch_body(call, target, kind)
    existed = kind != "apply" or store.core.latest_object(target.kind, target.namespace, target.name) is not None
    if not existed:
        call.require("create", Target(target.kind, target.namespace, target.name))
    try:
        stored = await store.patch(
            target.kind, target.namespace, target.name, body, type=kind, subresource=target.subresource, options=options
        )
    except DecodingError as error:
        raise (error if kind == "apply" else _invalid_patch(target.kind, error, kind)) from None
    await _send_stored(call, send, store, target.kind, stored, code=200 if existed else 201)


def _invalid_patch(kind: Kind, error: DecodingError, type: PatchType) -> Invalid:
    """The error for a patch whose result does not fit the type: the real server blames the patch and names no object."""
    is_conversion = "json: cannot unmarshal" in error.why or error.why.startswith("illegal base64")
    why = f"a value cannot be converted: {error.why}" if type == "strategic" and is_conversion else error.why
    cause = field_errors.invalid_value("patch", kind.name, why)
    return Invalid(f' "" is invalid: patch: {cause.message}', causes=[cause])


def _patch_body(call: Call, target: Target, kind: PatchType) -> Any:
    if kind != "apply":
        prefix = "" if kind == "strategic" else "error decoding patch: "  # as the real server
        patch = request_body.patch_of(call.body, prefix)
        if kind == "merge" and patch is None:
            raise BadRequest("Invalid JSON Patch")
        if kind == "strategic" and patch is None:  # to Go, an empty map
            return {}
        if kind != "json" and not isinstance(patch, dict):
            raise BadRequest(prefix + unmarshal_error(patch, "an object"))
        return patch
    return requests.apply_configuration(target.kind, request_body.yaml_of(call.body))


async def _send_stored(call: Call, send: Send, store: Store, kind: Kind, stored: Object, *, code: int = 200) -> None:
    form = requests.negotiate_form(call.header(b"accept"))
    if form:
        return await answer_object(send, transform_object(call, kind, stored, form), code=code, warnings=call.warnings)
    await answer(send, list_answers.encode_object(store, kind, stored), code=code, warnings=call.warnings)
