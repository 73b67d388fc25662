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
from rowlock.cluster.api import decoding, fieldsets, jsonpatch, managedfields, strategic, types
from rowlock.cluster.api.custom import prune
from rowlock.cluster.api.decoding import Walk
from rowlock.errors import ApiError, BadRequest, Cause, Invalid, UnsupportedMediaType
from rowlock.kinds import Kind
from rowlock.objects import Object

ACCEPTED = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
MAX_DEPTH = 100


class Untyped(ApiError):
    """A configuration that does not fit the schema: the real server gives it no reason."""

    code, reason = 500, ""


class Patches:
    """Stateless but for its clock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    def apply(self, kind: Kind, current: Object | None, patch: Any, type: PatchType, options: WriteOptions) -> Object:
        """The object after the patch. Raises BadRequest, Invalid, Conflict, UnsupportedMediaType."""
        if type == "apply":
            return self._server_side(kind, current, patch, options)
        if current is None:
            raise BadRequest("only server-side apply creates objects")
        if type == "json":
            new = jsonpatch.patched(current, patch)
        else:
            if not isinstance(patch, dict):
                raise BadRequest("a patch of this type is a JSON object")
            new = self._merged(kind, current, patch, type)
        return _checked(current, new)

    def _merged(self, kind: Kind, current: Object, patch: dict[str, Any], type: PatchType) -> Any:
        if type == "merge":
            return merge(current, patch)
        if kind.custom:
            raise UnsupportedMediaType(
                f"the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
            )
        return strategic.merged(current, patch, types.of(kind))

    def _server_side(self, kind: Kind, current: Object | None, patch: Any, options: WriteOptions) -> Object:
        if not options.manager:
            cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
            text = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise Invalid(text, causes=[cause], details={"group": "meta.k8s.io", "kind": "PatchOptions"})
        config = typed(kind, patch)
        author = managedfields.Author(options.manager, objects.timestamp(self._clock()))
        new = managedfields.applied(kind, current, config, author, force=options.force)
        return _checked(current, new) if current is not None else new


def _checked(current: Object, new: Any) -> Object:
    """A patch may change much, but not which object it is about."""
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise BadRequest("the patch leaves something that is not an object")
    for key in ("name", "namespace"):
        had, has = objects.meta(current).get(key), new["metadata"].get(key)
        if has is not None and has != had and key == "namespace":
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
        if has is not None and has != had:
            raise BadRequest(f"the {key} of the object ({has}) does not match the {key} on the URL ({had})")
    if new["metadata"].get("managedFields") is not objects.meta(current).get("managedFields"):
        managedfields.check(new["metadata"].get("managedFields"))
    for key in ("apiVersion", "kind"):
        if new.get(key) != current.get(key):
            raise BadRequest(
                f"the {key} of the object ({new.get(key)}) does not match the {key} on the URL ({current.get(key)})"
            )
    return new


def typed(kind: Kind, config: Any) -> Object:
    """A configuration for server-side apply, checked against the schema. Raises Untyped, BadRequest."""
    if not isinstance(config, dict):
        raise BadRequest("an apply configuration is an object")
    if (config.get("metadata") or {}).get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
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
