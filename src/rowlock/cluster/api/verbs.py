"""The verbs over HTTP: get, list, create, update, patch, delete, deletecollection, from a Call to an answer.

Thin: what a write means is the store's business, what is admitted admission's. Objects that the store holds encoded
are sent as they are.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.types import Send

from rowlock import kinds, objects
from rowlock.api import Page, PatchType, WriteOptions
from rowlock.cluster.api import (
    admission,
    bodies,
    decoding,
    golang,
    grammar,
    jsonpatch,
    managedfields,
    patches,
    requests,
    tables,
    types,
    wording,
)
from rowlock.cluster.api.admission import Unreadable, decoded
from rowlock.cluster.api.answers import answer, answer_object, encode
from rowlock.cluster.api.requests import Call, Form, Target
from rowlock.cluster.storage import lifecycle, reading
from rowlock.cluster.storage.store import Store
from rowlock.errors import BadRequest, Conflict, Invalid, Unsupported, UnsupportedMediaType, conflict
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.selectors import FieldSelector, Selector, parse_fields, parse_labels

PATCHES: dict[str, PatchType] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_META_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS: dict[Kind, frozenset[str]] = {
    kinds.POD: frozenset(
        {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
         "status.phase", "status.podIP", "status.nominatedNodeName"}
    ),
    kinds.EVENT: frozenset(
        {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
         "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
         "reportingComponent", "source", "type"}
    ),
    kinds.NODE: frozenset({"spec.unschedulable"}),
    kinds.NAMESPACE: frozenset({"status.phase"}),
    kinds.SECRET: frozenset({"type"}),
    kinds.SERVICE: frozenset({"spec.clusterIP", "spec.type"}),
}  # fmt: skip


def selectors(call: Call, kind: Kind) -> tuple[Selector, FieldSelector]:
    """The label and field selector of a request. Raises BadRequest in kubectl's expected sentence."""
    labels, fields = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
    if not labels and not fields:
        return Selector(), FieldSelector()
    try:
        found = parse_labels(labels), parse_fields(fields)
    except BadRequest as error:
        raise BadRequest(grammar.spoken(labels) or error.message) from None
    grammar.check(found[0])
    known = _META_FIELDS | _FIELDS.get(kind, frozenset())
    if not kind.namespaced and (kind in _FIELDS or kind.custom):
        known -= {"metadata.namespace"}
    for term in found[1].terms:
        if term.key not in known:
            if kind in _FIELDS or kind.custom:
                raise BadRequest(f"field label not supported: {term.key}")
            raise BadRequest(f'"{term.key}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    return found


# ---------------------------------------------------------------- reads


async def get(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.READ)
    form, kind = requests.form_of(call.header(b"accept")), target.kind
    _reached(call, store)
    stored = None if form.view else store.encoded(kind, target.namespace, target.name)
    if stored is not None:
        return await answer(send, stored, warnings=call.warnings)
    obj = await store.get(kind, target.namespace, target.name)
    await answer_object(send, in_form(call, kind, obj, form), warnings=call.warnings)


def in_form(call: Call, kind: Kind, obj: Object, form: Form) -> Object:
    """One object in the form that was asked for."""
    if form.view == "Table":
        made = tables.table(kind, [obj], time.time(), include=include(call))
        made["metadata"] = {"resourceVersion": objects.meta(obj).get("resourceVersion", "")}
        return made
    return tables.partial(obj) if form.view else obj


def include(call: Call) -> tables.Include:
    asked = call.query.get("includeObject") or "Metadata"
    if asked not in ("None", "Metadata", "Object"):
        raise BadRequest(f'includeObject is None, Metadata or Object, not "{asked}"')
    return asked  # type: ignore[return-value]  # one of the three


def _reached(call: Call, store: Store) -> None:
    """A read at least as new as `resourceVersion`; one from the future is told so."""
    wanted = requests.revision_of(call)
    if wanted is not None and wanted > store.revision:
        raise requests.from_the_future(wanted, store.revision)


async def list_(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.LIST)
    page = await page_of(call, store, target)
    await answer(send, listed(call, store, target, page), warnings=call.warnings)


async def page_of(call: Call, store: Store, target: Target) -> Page:
    labels, fields = selectors(call, target.kind)
    call.number("timeoutSeconds")
    limit, token = call.number("limit") or 0, call.query.get("continue", "")
    match, wanted = call.query.get("resourceVersionMatch", ""), _listed_at(call)
    if match not in ("", "Exact", "NotOlderThan"):
        known = '"Exact", "NotOlderThan", ""'
        text = f'Unsupported value: "{match}": supported values: {known}'
        raise requests.wrong_option("ListOptions", "resourceVersionMatch", text)
    if match and wanted is None:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise requests.wrong_option("ListOptions", "resourceVersionMatch", text)
    if match == "Exact" and not wanted:
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise requests.wrong_option("ListOptions", "resourceVersionMatch", text)
    if "sendInitialEvents" in call.query:
        text = "Forbidden: sendInitialEvents is forbidden for list"
        raise requests.wrong_option("ListOptions", "sendInitialEvents", text)
    if token and wanted:
        raise BadRequest("specifying resource version is not allowed when using continue")
    _reached(call, store)
    if match == "Exact" and wanted and not token and wanted != store.revision:
        limit = limit or requests.PAGE_LIMIT
        token = reading.token(wanted, objects.Key("", ""))
    limit = min(max(limit, 0), requests.PAGE_LIMIT)  # a negative limit is none
    if limit or token:
        return await store.list(target.kind, target.namespace, labels=labels, fields=fields, limit=limit, token=token)
    return await store.list(target.kind, target.namespace, labels=labels, fields=fields)


def _listed_at(call: Call) -> int | None:
    try:
        return requests.revision_of(call)
    except Invalid as error:
        raise BadRequest(f"invalid resource version: {error.message}") from None


def listed(call: Call, store: Store, target: Target, page: Page) -> bytes:
    kind, form = target.kind, requests.form_of(call.header(b"accept"), listed=True)
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    if form.view == "Table":
        made = tables.table(kind, page.items, time.time(), include=include(call))
        made["metadata"] = meta
        return encode(made)
    if form.view:
        name, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = _array([encode(tables.partial(obj)) for obj in page.items])
        if not page.items:  # a list in Go that nobody began
            items = b"null"
    else:
        name, version = f"{kind.name}List", kind.api_version
        encoded = _all_encoded(store, target, page)
        items = _array(encoded) if kind.custom else array_of(kind, encoded)
        if kind.custom:
            meta.setdefault("continue", "")
    head = encode({"kind": name, "apiVersion": version, "metadata": meta})
    return b"".join((memoryview(head)[:-1], b',"items":', items, b"}"))


def _array(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def array_of(kind: Kind, encoded: list[bytes]) -> bytes:
    """The elements of a built-in kind's list without what they are, which the list says. There may be 100,000: they are
    cut behind the brace and the words that admission puts first, and copied once."""
    head = b'{"apiVersion":"%b","kind":"%b",' % (kind.api_version.encode(), kind.name.encode())
    cut = len(head)
    rest = [memoryview(one)[cut:] if one.startswith(head) else memoryview(_untyped(one))[1:] for one in encoded]
    return b"[{" + b",{".join(rest) + b"]" if rest else b"[]"


def _untyped(encoded: bytes) -> bytes:
    """An object written in another order, by an older rowlock perhaps."""
    return encode({k: v for k, v in msgspec.json.decode(encoded).items() if k not in ("apiVersion", "kind")})


def _all_encoded(store: Store, target: Target, page: Page) -> list[bytes]:
    """A page's objects as they are stored; when it is all there is, without looking at each."""
    kind, space = target.kind, target.namespace if target.kind.namespaced else ""
    if page.revision == store.revision and len(page.items) == store.view.count(kind, space):
        return store.view.all_encoded(kind, space)
    return [_encoded(store, kind, obj) for obj in page.items]


def _encoded(store: Store, kind: Kind, obj: Object) -> bytes:
    """The stored JSON, if the object is still the newest."""
    return store.view.encoded_of(kind, obj) or encode(obj)


# ---------------------------------------------------------------- writes


async def create(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.WRITE)
    if target.kind.namespaced and not target.namespace:
        raise Unsupported("the server does not allow this method on the requested resource")
    options = requests.write_options(call, "CreateOptions")
    obj = writable(call, target, options)
    if obj.get("status"):
        _unseen(target.kind, obj, options, "status")
    made = await store.create(target.kind, obj, options=options)
    await _written(call, send, store, target.kind, made, code=201)


async def update(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.WRITE)
    options = requests.write_options(call, "UpdateOptions")
    obj = writable(call, target, options)
    name = objects.name(obj)
    if name != target.name:
        _unseen(target.kind, obj, options)
        if name:
            raise BadRequest(lifecycle.misnamed(name, target.name))
        raise BadRequest(lifecycle.nameless(target.name))
    current = store.core.current(target.kind, target.namespace, target.name)
    if current is None:
        _unseen(target.kind, obj, options)
        made = await _made(store, target, obj, options)
        return await _written(call, send, store, target.kind, made, code=201)
    if obj.get("status") and not target.subresource:
        _unseen(target.kind, obj, options, "status")
    try:
        if (other := objects.uid(obj)) and other != objects.uid(current):
            raise _another(target, other, objects.uid(current))
        lifecycle.check_conditional(target.kind, target.name, obj)
        made = await store.update(target.kind, obj, subresource=target.subresource, options=options)
    except (Conflict, Invalid):
        _unseen(target.kind, obj, options)  # what cannot be read is told first
        raise
    await _written(call, send, store, target.kind, made)


async def _made(store: Store, target: Target, obj: Object, options: WriteOptions) -> Object:
    """What an update makes where it finds nothing to update. Raises NotFound, where it makes nothing; Conflict."""
    service = target.kind is kinds.SERVICE and target.subresource == "status"
    if not service and (target.subresource or target.kind not in _MADE_BY_UPDATES):
        return await store.update(target.kind, obj, subresource=target.subresource, options=options)
    if other := objects.uid(obj):
        raise _another(target, other, "")
    if service:
        raise admission.no_service(obj)
    return await store.create(target.kind, obj, options=options, posted=False)


def _another(target: Target, wanted: str, found: str) -> Conflict:
    """An update of an object that has another uid, in the words of a real server's store."""
    kind = target.kind
    place = [kind.group] if kind.custom else []
    place += [kind.plural, *(["specs"] if kind is kinds.SERVICE else []), target.namespace, target.name]
    key = "/registry/" + "/".join(filter(None, place))
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    why = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    return conflict(kind.plural, target.name, why, kind.group)


_MADE_BY_UPDATES = frozenset({kinds.EVENT, kinds.LEASE, kinds.SERVICE, kinds.ROLE, kinds.ROLE_BINDING})
"""What a real server makes when an update finds nothing to update."""


def _unseen(kind: Kind, obj: Object, options: WriteOptions, part: str = "") -> None:
    """What a write will not use is read all the same: a status, an update of what is not there. Raises Unreadable."""
    found = WriteOptions(validation=options.validation)
    decoded(kind, obj, found)
    options.warnings.extend(said for said in found.warnings if said.startswith(f'unknown field "{part}'))


def writable(call: Call, target: Target, options: WriteOptions) -> Object:
    """The body as an object that the store can take. Raises BadRequest."""
    try:
        value = _value(call, target.kind, options)
    except bodies.NoJson as error:
        raise BadRequest(golang.unrecognised(target.kind.name, call.body, error.why)) from None
    obj = requests.shaped(call, target, value)
    _check_meta(target.kind, obj["metadata"])
    return obj


def _value(call: Call, kind: Kind, options: WriteOptions) -> Any:
    media = call.header(b"content-type").partition(";")[0].strip().lower()
    if options.validation != "Ignore" and media in ("", "application/json"):
        value, twice = bodies.strict_json(call.body)
        _duplicates(kind, twice, options)
        return value
    return bodies.document(call)


def _duplicates(kind: Kind, twice: list[str], options: WriteOptions) -> None:
    problems = [f'duplicate field "{path}"' for path in twice]
    if problems and options.validation == "Strict":
        text = "strict decoding error: " + ", ".join(problems)
        raise BadRequest(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {text}')
    options.warnings.extend(problems)


def _check_meta(kind: Kind, meta: dict[str, Any]) -> None:
    """Metadata is read before anything is admitted: it must have its type."""
    if _plain(meta):
        return
    walk = decoding.Walk(path=["metadata"])
    try:
        decoding.decode(types.META, {k: v for k, v in meta.items() if k != "managedFields"}, walk)
    except BadRequest as error:
        text = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {error.message}'
        raise BadRequest(text) from None
    managedfields.check(meta.get("managedFields"))


def _plain(meta: dict[str, Any]) -> bool:
    """What most objects come with: names, labels and annotations, all of them texts."""
    for field, value in meta.items():
        if field in _TEXTS:
            if type(value) is not str:
                return False
        elif field not in _MAPS or type(value) is not dict or not all(type(text) is str for text in value.values()):
            return False
    return True


_TEXTS, _MAPS = frozenset({"name", "generateName", "namespace"}), frozenset({"labels", "annotations"})


async def patch(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.PATCH)
    media = call.header(b"content-type").partition(";")[0].strip()
    kind = PATCHES.get(media)
    if kind is None:
        raise UnsupportedMediaType("415: Unsupported Media Type")
    if kind == "strategic" and target.kind.custom:
        raise UnsupportedMediaType(patches.UNKNOWN_FORMAT)
    if kind != "apply" and call.flag("force"):
        text = "Forbidden: may not be specified for non-apply patch"
        raise requests.wrong_option("PatchOptions", "force", text)
    options = requests.write_options(call, "PatchOptions")
    if kind == "apply" and not call.query.get("fieldManager"):
        options = _without_manager(options)
    body = _patch_body(call, target, kind)
    existed = kind != "apply" or store.core.current(target.kind, target.namespace, target.name) is not None
    try:
        made = await store.patch(
            target.kind, target.namespace, target.name, body, type=kind, subresource=target.subresource, options=options
        )
    except Unreadable as error:
        raise error if kind == "apply" else _unfit(_blamed(store, target, body, kind), error, kind) from None
    await _written(call, send, store, target.kind, made, code=200 if existed else 201)


def _blamed(store: Store, target: Target, body: Any, kind: PatchType) -> Any:
    """What cannot be read: of a strategic patch the patch itself, of others what they make of the object."""
    current = store.core.current(target.kind, target.namespace, target.name)
    if kind == "strategic" or current is None:
        return body
    return jsonpatch.patched(current, body) if kind == "json" else patches.merge(current, body)


def _unfit(patch: Any, error: Unreadable, kind: PatchType) -> Invalid:
    """What a patch makes does not fit the type: the real server blames the patch and names no object."""
    if kind == "strategic":
        why = error.converted if error.converted != error.why else golang.unconverted(patch, error.why)
        cause = wording.invalid_value("patch", golang.printed(patch), why)
    else:
        text = msgspec.json.encode(patch, order="sorted").decode()
        cause = wording.invalid_value("patch", text, error.why)
    return Invalid(f' "" is invalid: patch: {cause.message}', causes=[cause])


def _without_manager(options: WriteOptions) -> WriteOptions:
    return WriteOptions(options.dry_run, "", options.force, options.validation, options.warnings)


def _patch_body(call: Call, target: Target, kind: PatchType) -> Any:
    if kind != "apply":
        said = "" if kind == "strategic" else "error decoding patch: "  # as the real server
        patch = bodies.patch_of(call.body, said)
        if kind == "merge" and patch is None:
            raise BadRequest("Invalid JSON Patch")
        if kind == "strategic" and patch is None:  # to Go, an empty map
            return {}
        if kind != "json" and not isinstance(patch, dict):
            raise BadRequest(said + golang.unmarshal(patch, "value of type map[string]interface {}"))
        return patch
    return requests.configuration(target.kind, bodies.yaml_of(call.body))


async def _written(call: Call, send: Send, store: Store, kind: Kind, made: Object, *, code: int = 200) -> None:
    form = requests.form_of(call.header(b"accept"))
    if form.view:
        return await answer_object(send, in_form(call, kind, made, form), code=code, warnings=call.warnings)
    await answer(send, _encoded(store, kind, made), code=code, warnings=call.warnings)
