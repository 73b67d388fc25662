"""The four ways to patch an object: JSON patch, merge patch, strategic merge patch, server-side apply.

The store calls `Patcher.apply`, which never changes its arguments. Strategic merge reads its merge keys from
the table of types, and exists for built-in kinds only, as on a real server. Pure except for the clock, which apply uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rowlock import objects
from rowlock.api import PatchType, WriteOptions
from rowlock.apiserver.admission.chain import DecodingError, decode_object, missing_service_error
from rowlock.apiserver.apply import apply_schema
from rowlock.apiserver.apply import managed_fields as field_ownership
from rowlock.apiserver.http import requests
from rowlock.apiserver.patch import json_patch, strategic_merge
from rowlock.apiserver.schema import decoding, types
from rowlock.apiserver.schema.decoding import Walk
from rowlock.apiserver.schema.json_errors import unmarshal_error
from rowlock.documents.field_errors import format_value
from rowlock.errors import BadRequest, Cause, UnsupportedMediaType, invalid
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.storage import lifecycle

ACCEPTED_MEDIA_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
UNKNOWN_FORMAT = (
    f"the body of the request was in an unknown format - accepted media types include: {ACCEPTED_MEDIA_TYPES}"
)


class Patcher:
    """Implements the store's `Patches`; stateless except for its clock."""

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
            return self._apply_server_side(kind, current, patch, options, subresource)
        if current is None:
            raise BadRequest("only server-side apply creates objects")
        if type == "json":
            new = json_patch.apply_json_patch(current, patch)
        else:
            if not isinstance(patch, dict):
                raise BadRequest("a patch of this type is a JSON object")
            new = self._merge(kind, current, patch, type)
        try:
            return _check_identity(kind, current, new)
        except ObjectIdentityError:
            decode_object(kind, new, options)  # unknown fields are reported first
            raise

    def _merge(self, kind: Kind, current: Object, patch: dict[str, Any], type: PatchType) -> Any:
        if type == "merge":
            return objects.merge_patch(current, patch)
        if kind.custom:
            raise UnsupportedMediaType(UNKNOWN_FORMAT)
        new = strategic_merge.strategic_merge(current, patch, types.schema_of(kind))
        if not all(isinstance(new.get(key), str | None) for key in ("apiVersion", "kind")):
            return new
        # a real server merges into a Go struct, whose kind the patch cannot change
        return {**new, "apiVersion": current["apiVersion"], "kind": current["kind"]}

    def _apply_server_side(
        self, kind: Kind, current: Object | None, patch: Any, options: WriteOptions, subresource: str
    ) -> Object:
        if not options.manager:
            text = "Required value: is required for apply patch"
            raise requests.invalid_option("PatchOptions", "fieldManager", text)
        if not isinstance(patch, dict):
            raise BadRequest("an apply configuration is an object")
        if isinstance(objects.dig(patch, "metadata.managedFields"), list):
            raise BadRequest("metadata.managedFields must be nil")
        apply_schema.check_configuration(kind, patch)
        manager = field_ownership.FieldManager(options.manager, objects.timestamp(self._clock()), subresource)
        new = field_ownership.apply_configuration(kind, current, patch, manager, force=options.force)
        managed_fields = objects.meta(new)["managedFields"]
        new = apply_schema.convert_to_typed(kind, objects.with_field(new, "metadata.managedFields", None), patch)
        new = {**new, "metadata": {**(new.get("metadata") or {}), "managedFields": managed_fields}}
        if current is not None:
            return _check_identity(kind, current, new)
        if subresource:
            raise missing_service_error(new)
        return new


class ObjectIdentityError(BadRequest):
    """The patch would change the object's name or namespace."""


def _check_identity(kind: Kind, current: Object, new: Any) -> Object:
    """The patched object, if it is still the same object. Raises BadRequest, DecodingError when its identity has changed."""
    if not isinstance(new, dict):
        raise BadRequest("the patch leaves something that is not an object")
    refusal = ObjectIdentityError if _is_same_kind(current, new) else BadRequest
    meta, name = new.get("metadata"), objects.name(current)
    if meta is None or (isinstance(meta, dict) and meta.get("name") in (None, "")):
        raise refusal(lifecycle.missing_name_message(name))
    if not isinstance(meta, dict):
        raise DecodingError(kind, unmarshal_error(meta, f"Go struct field {kind.name}.metadata of type v1.ObjectMeta"))
    check_meta_types(kind, meta, objects.meta(current))
    space = meta.get("namespace")
    if space and not kind.namespaced:
        new = {**new, "metadata": {key: value for key, value in meta.items() if key != "namespace"}}
    elif space and space != objects.namespace(current):
        raise refusal(lifecycle.NAMESPACE_MISMATCH_MESSAGE)
    if meta["name"] != name:
        raise refusal(lifecycle.name_mismatch_message(meta["name"], name))
    return _check_kind(kind, current, new)


def check_meta_types(kind: Kind, meta: Object, before: Object | None = None) -> None:
    """Check the types of metadata fields that differ from `before`, before other code uses them. Raises
    DecodingError."""
    old = before or {}
    changed = {k: v for k, v in meta.items() if v is not None and v is not old.get(k)}
    if isinstance(changed.get("managedFields"), field_ownership.SettledManagedFields):
        del changed["managedFields"]
    try:
        decoding.decode(types.META, changed, Walk(path=["metadata"]))
    except BadRequest as error:
        raise DecodingError(kind, error.message) from None


def _is_same_kind(current: Object, new: Object) -> bool:
    return all(new.get(key) == current.get(key) for key in ("apiVersion", "kind"))


def _check_kind(kind: Kind, current: Object, new: Object) -> Object:
    """The patched object, if it still has its kind. Raises BadRequest, DecodingError, Invalid."""
    version, name = new.get("apiVersion"), new.get("kind")
    if _is_same_kind(current, new):
        return new
    if not kind.custom and version == kind.api_version and name in (None, ""):  # the path says it
        return {**new, "kind": kind.name}
    for field, value in (("apiVersion", version), ("kind", name)):
        if not isinstance(value, str | None):
            why = unmarshal_error(value, f"Go struct field .{field} of type string")
            raise DecodingError(kind, f"couldn't get version/kind; json parse error: {why}")
    if not version or not name:
        raise BadRequest(f"the patch leaves apiVersion {version!r} and kind {name!r}, which is no kind of object")
    if not kind.custom:
        raise DecodingError(kind, f'no kind "{name}" is registered for version "{version}"')
    pairs = (("kind", name, kind.name), ("apiVersion", version, kind.api_version))
    causes = [
        Cause("FieldValueInvalid", f"Invalid value: {format_value(got)}: must be {expected}", key)
        for key, got, expected in pairs
        if got != expected
    ]
    raise invalid(name, objects.name(current), causes, kind.group)
