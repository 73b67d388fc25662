"""The four ways to patch an object: JSON patch, merge patch, strategic merge patch, server-side apply.

`Patches.apply` is what the store calls; it never touches what it was given. Strategic merge reads its merge keys from
the table of types, and exists for built-in kinds only, as on a real server. Pure but for the clock that apply notes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowlock import objects
from rowlock.api import PatchType, WriteOptions
from rowlock.cluster.api import decoding, fieldsets, golang, jsonpatch, managedfields, strategic, types, wording
from rowlock.cluster.api.admission import Unreadable
from rowlock.cluster.api.custom import prune
from rowlock.cluster.api.decoding import Walk
from rowlock.cluster.api.wording import shown
from rowlock.errors import ApiError, BadRequest, Cause, Invalid, UnsupportedMediaType, invalid
from rowlock.kinds import Kind
from rowlock.objects import Object

ACCEPTED = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
UNKNOWN_FORMAT = f"the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
MAX_DEPTH = 100


class Untyped(ApiError):
    """A configuration that does not fit the schema: the real server gives it no reason."""

    code, reason = 500, ""


class Patches:
    """Stateless but for its clock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def apply(
        self,
        kind: Kind,
        current: Object | None,
        patch: Any,
        type: PatchType,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Object:
        """The object after the patch. Raises BadRequest, Invalid, Conflict, UnsupportedMediaType."""
        if type == "apply":
            return self._server_side(kind, current, patch, options, subresource)
        if current is None:
            raise BadRequest("only server-side apply creates objects")
        if type == "json":
            new = jsonpatch.patched(current, patch)
        else:
            if not isinstance(patch, dict):
                raise BadRequest("a patch of this type is a JSON object")
            new = self._merged(kind, current, patch, type)
        return _checked(kind, current, new)

    def _merged(self, kind: Kind, current: Object, patch: dict[str, Any], type: PatchType) -> Any:
        if type == "merge":
            return merge(current, patch)
        if kind.custom:
            raise UnsupportedMediaType(UNKNOWN_FORMAT)
        new = strategic.merged(current, patch, types.of(kind))
        if not all(isinstance(new.get(key), str | None) for key in ("apiVersion", "kind")):
            return new
        # a real server merges into a structure, which is of this kind whatever the patch says
        return {**new, "apiVersion": current["apiVersion"], "kind": current["kind"]}

    def _server_side(
        self, kind: Kind, current: Object | None, patch: Any, options: WriteOptions, subresource: str
    ) -> Object:
        if not options.manager:
            cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
            text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise Invalid(text, causes=[cause], details={"group": "meta.k8s.io", "kind": "PatchOptions"})
        config = _through(kind, subresource, typed(kind, patch))
        author = managedfields.Author(options.manager, objects.timestamp(self._clock()), subresource)
        new = managedfields.applied(kind, current, config, author, force=options.force)
        return _checked(kind, current, new) if current is not None else new


def _through(kind: Kind, door: str, config: Object) -> Object:
    """The part of a configuration that this door lets in; the rest is nobody's."""
    if door == "status":
        return {k: v for k, v in config.items() if k in ("apiVersion", "kind", "metadata", "status")}
    if not door and "status" in kind.subresources:
        return {k: v for k, v in config.items() if k != "status"}
    return config


def _checked(kind: Kind, current: Object, new: Any) -> Object:
    """A patch may change much, but not which object it is about."""
    name = objects.name(current)
    if isinstance(new, dict) and (new.get("metadata") is None or _nameless(new["metadata"])):
        raise BadRequest(wording.nameless(name))
    if not isinstance(new, dict):
        raise BadRequest("the patch leaves something that is not an object")
    meta = new["metadata"]
    if not isinstance(meta, dict):
        raise Unreadable(kind, golang.unmarshal(meta, f"struct field {kind.name}.metadata of type v1.ObjectMeta"))
    _typed_meta(kind, objects.meta(current), meta)
    if meta["name"] != name:
        raise BadRequest(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    space = meta.get("namespace")
    if space and not kind.namespaced:
        new = {**new, "metadata": {key: value for key, value in meta.items() if key != "namespace"}}
    elif space and space != objects.namespace(current):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if meta.get("managedFields") is not objects.meta(current).get("managedFields"):
        managedfields.check(meta.get("managedFields"))
    return _of_kind(kind, current, new)


def _typed_meta(kind: Kind, before: Object, meta: Object) -> None:
    """Metadata has its types before the server puts back what is its own. Raises Unreadable."""
    touched = {k: v for k, v in meta.items() if k != "managedFields" and v is not None and v is not before.get(k)}
    if not touched:
        return
    try:
        decoding.decode(types.META, touched, Walk(path=["metadata"]))
    except BadRequest as error:
        raise Unreadable(kind, error.message) from None


def _nameless(meta: Any) -> bool:
    return isinstance(meta, dict) and meta.get("name") in (None, "")


def _of_kind(kind: Kind, current: Object, new: Object) -> Object:
    """What a patch made, if it is still of its kind."""
    version, name = new.get("apiVersion"), new.get("kind")
    if (version, name) == (current.get("apiVersion"), current.get("kind")):
        return new
    if not kind.custom and version == kind.api_version and name in (None, ""):  # the path says it
        return {**new, "kind": kind.name}
    for field, value in (("apiVersion", version), ("kind", name)):
        if not isinstance(value, str | None):
            why = golang.unmarshal(value, f"struct field .{field} of type string")
            raise Unreadable(kind, f"couldn't get version/kind; json parse error: {why}")
    if not version or not name:
        raise BadRequest(f"the patch leaves apiVersion {version!r} and kind {name!r}, which is no kind of object")
    if not kind.custom:
        where = f'registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
        raise Unreadable(kind, f'no kind "{name}" is {where}')
    pairs = (("kind", name, kind.name), ("apiVersion", version, kind.api_version))
    causes = [
        Cause("FieldValueInvalid", f"Invalid value: {shown(got)}: must be {wanted}", key)
        for key, got, wanted in pairs
        if got != wanted
    ]
    raise invalid(name, objects.name(current), causes, kind.group)


def typed(kind: Kind, config: Any) -> Object:
    """A configuration for server-side apply, checked against the schema. Raises Untyped, BadRequest."""
    if not isinstance(config, dict):
        raise BadRequest("an apply configuration is an object")
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    if wrong := _misfit(config, types.of(kind), ""):
        raise _untyped(kind, config, wrong)
    walk = Walk(fill=False)
    try:
        if kind.custom:
            found = prune(config, types.of(kind), walk)
        else:
            found = decoding.decode(types.name_of(kind.group, kind.version, kind.name), config, walk)
    except BadRequest as error:
        raise _untyped(kind, config, error.message) from None
    if walk.unknown:
        raise _untyped(kind, config, f".{walk.unknown[0]}: field not declared in schema")
    result: Object = found
    if twice := fieldsets.repeated(result, types.of(kind)):
        where, element = twice
        called = fieldsets.spoken((*where, element)).removeprefix(fieldsets.spoken(where))
        raise _untyped(kind, config, f"{fieldsets.spoken(where)}: duplicate entries for key {called}")
    return result


def _misfit(value: Any, node: types.Schema, at: str) -> str:
    """The first number that is none, in the words of server-side apply; other things decoding finds."""
    node = types.resolved(node)
    if isinstance(value, dict):
        below = ((f"{at}.{key}", part, types.field(node, key)) for key, part in value.items())
        return next((why for where, part, child in below if child and (why := _misfit(part, child, where))), "")
    if isinstance(value, list):
        keys, child = node.get("x-kubernetes-list-map-keys") or (), types.items(node)
        for index, part in enumerate(value):
            where = fieldsets.spoken((fieldsets.element_of(part, node),)) if keys else f"[{index}]"
            if why := _misfit(part, child, at + where):
                return why
        return ""
    if node.get("type") in ("integer", "number") and isinstance(value, str | bool):
        return f"{at}: expected numeric (int or float), got {'bool' if isinstance(value, bool) else 'string'}"
    return ""


def _untyped(kind: Kind, config: dict[str, Any], why: str) -> Untyped:
    meta = config.get("metadata") or {}
    place = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
    return Untyped(
        f"failed to create typed patch object ({place}; {kind.group}/{kind.version}, Kind={kind.name}): {why}"
    )


def merge(target: Any, patch: Any, depth: int = 0) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if depth > MAX_DEPTH:
        raise BadRequest(f"the patch is nested more than {MAX_DEPTH} levels deep")
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value, depth + 1)
    return out
