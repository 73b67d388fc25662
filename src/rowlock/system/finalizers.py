"""Finalizers of objects, and metadata patches that apply only to the revision of the object that was read."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.api import Patch, Write
from rowlock.kinds import Kind
from rowlock.objects import Object


def finalizers_of(obj: Object) -> list[str]:
    """`metadata.finalizers`, [] when there are none."""
    return objects.meta(obj).get("finalizers") or []


def remove_finalizer(kind: Kind, obj: Object, name: str) -> Write:
    """The write that removes one finalizer. The store deletes an object being deleted when its last finalizer is removed."""
    remaining = [f for f in finalizers_of(obj) if f != name]
    return patch_metadata(kind, obj, {"finalizers": remaining or None})


def patch_metadata(kind: Kind, obj: Object, meta: dict[str, Any]) -> Write:
    """A merge patch of `metadata`. It conflicts when the object has changed or was replaced by another of the same name."""
    checks = {"uid": objects.uid(obj), "resourceVersion": objects.meta(obj).get("resourceVersion")}
    return Patch(kind, objects.namespace(obj), objects.name(obj), {"metadata": checks | meta})
