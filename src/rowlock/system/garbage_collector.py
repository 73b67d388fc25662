"""Deletes dependents whose owners are gone, and carries out foreground and orphaning deletions.

The rules are those of kube-controller-manager's garbage collector (`attemptToDeleteItem`, `attemptToOrphan`). The time
to live of a finished job is the job operator's business (`training/job.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import (
    NOTHING,
    Change,
    Decision,
    Delete,
    DeleteOptions,
    View,
    Write,
)
from rowlock.kinds import KINDS, Kind
from rowlock.objects import Key, Object
from rowlock.system.finalizers import finalizers_of, patch_metadata, remove_finalizer

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector:
    """One key per owner: its namespace and `resource/name/uid`, because an owner may be gone already."""

    name = "garbage-collector"
    kinds: tuple[Kind, ...] = KINDS

    def __init__(self) -> None:
        self._gone_at = -1
        self._gone_owners: dict[tuple[Kind, Key], Key | None] = {}

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        obj, kind = change.object, change.kind
        if kind is None:
            return []
        own_keys = (
            [_owner_key(kind, obj)]
            if change.type == "Deleted" or (objects.is_deleting(obj) and deletion_policy(obj))
            else []
        )
        references = references_of(obj)
        # A modified object concerns its owners only when its owner references changed.
        if change.type == "Modified" and change.old is not None and references == references_of(change.old):
            return own_keys
        owner_keys = (reference_key(obj, reference) for reference in references)
        return own_keys + [k for k in owner_keys if k is not None and not _is_at_ease(owner_of(view, k))]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        resource, _, uid = key.name.split("/")
        owner = owner_of(view, key)
        if owner is None:
            return Decision(
                tuple(
                    w
                    for kind, obj in _dependents(view, key.namespace, uid)
                    if self._first_gone(view, kind, obj) == key and (w := _delete_or_remove_owner(view, kind, obj, uid))
                )
            )
        if _is_at_ease(owner):
            return NOTHING
        policy = deletion_policy(owner)
        dependents = _dependents(view, key.namespace, uid)
        if policy == ORPHAN:
            release = remove_finalizer(kinds.by_resource(resource), owner, ORPHAN)
            return Decision((*(_remove_owners(kind, obj, {uid}) for kind, obj in dependents), release))
        return Decision(_delete_in_foreground(view, kinds.by_resource(resource), owner, dependents))

    def _first_gone(self, view: View, kind: Kind, obj: Object) -> Key | None:
        """The key of the object's first owner that does not exist; its turn handles the object for all missing owners. Cached while the
        view's revision stays the same: an object may have thousands of missing owners, and each one's turn would search them all."""
        if view.revision != self._gone_at:
            self._gone_at = view.revision
            self._gone_owners.clear()
        dependent = (kind, objects.key(obj))
        if dependent not in self._gone_owners:
            owners = (reference_key(obj, reference) for reference in references_of(obj))
            self._gone_owners[dependent] = next((k for k in owners if k is not None and _is_gone(view, k)), None)
        return self._gone_owners[dependent]


def _dependents(view: View, namespace: str, uid: str) -> list[tuple[Kind, Object]]:
    """The dependents of the owner with this uid: in its namespace, or in all of them for a cluster-scoped owner (`namespace` is "")."""
    return [
        (kind, obj) for kind in KINDS for obj in view.by_owner(kind, uid) if namespace in ("", objects.namespace(obj))
    ]


def _delete_in_foreground(
    view: View, kind: Kind, owner: Object, dependents: list[tuple[Kind, Object]]
) -> tuple[Write, ...]:
    """Delete the dependents first. The owner keeps its finalizer while one of them has blockOwnerDeletion."""
    uid = objects.uid(owner)
    writes = tuple(w for k, obj in dependents if (w := _delete_or_remove_owner(view, k, obj, uid, "Foreground")))
    blocking = any(
        reference.get("uid") == uid and reference.get("blockOwnerDeletion")
        for _, obj in dependents
        for reference in references_of(obj)
    )
    return writes if blocking else (*writes, remove_finalizer(kind, owner, FOREGROUND))


def _delete_or_remove_owner(view: View, kind: Kind, obj: Object, uid: str, propagation: str = "") -> Write | None:
    """The write for a dependent that loses the owner `uid`: delete it, or only remove the reference if another owner still exists."""
    if objects.is_deleting(obj):
        return None
    dangling = {str(r.get("uid")) for r in references_of(obj) if not _is_solid_reference(view, obj, r)}
    if len(dangling) < len(references_of(obj)):
        # In a foreground deletion the owner still exists; its reference is removed once it is gone.
        return None if propagation else _remove_owners(kind, obj, dangling | {uid})
    if propagation and not any(True for k in KINDS for _ in view.by_owner(k, objects.uid(obj))):
        propagation = ""
    options = DeleteOptions(
        propagation="Foreground" if propagation else None if deletion_policy(obj) else "Background",
        uid=objects.uid(obj),
        revision=objects.revision(obj),
    )
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


def _is_solid_reference(view: View, obj: Object, reference: dict[str, Any]) -> bool:
    """Whether the referenced owner exists and is not in a foreground deletion."""
    owner_key = reference_key(obj, reference)
    if owner_key is None:
        return True  # of a kind that this cluster does not store
    owner = owner_of(view, owner_key)
    return owner is not None and not (objects.is_deleting(owner) and deletion_policy(owner) == FOREGROUND)


def owner_of(view: View, owner_key: Key) -> Object | None:
    """The metadata of the owner that a key of this controller names, as in an object; None if it is gone or was replaced by another of the
    same name."""
    resource, name, uid = owner_key.name.split("/")
    metadata = view.metadata(kinds.by_resource(resource), owner_key.namespace, name)
    return {"metadata": metadata} if metadata is not None and metadata.get("uid") == uid else None


def _is_at_ease(owner: Object | None) -> bool:
    """Whether an owner is there and its dependents may stay. Its own changes wake the controller when that ends, so that none of the
    thousands of objects that it may have causes a turn."""
    return owner is not None and not (objects.is_deleting(owner) and deletion_policy(owner))


def _is_gone(view: View, owner_key: Key) -> bool:
    return owner_of(view, owner_key) is None


def _remove_owners(kind: Kind, obj: Object, uids: set[str]) -> Write:
    remaining = [r for r in references_of(obj) if r.get("uid") not in uids]
    return patch_metadata(kind, obj, {"ownerReferences": remaining or None})


def references_of(obj: Object) -> list[dict[str, Any]]:
    return objects.meta(obj).get("ownerReferences") or []


def deletion_policy(obj: Object) -> str:
    finalizers = finalizers_of(obj)
    return FOREGROUND if FOREGROUND in finalizers else ORPHAN if ORPHAN in finalizers else ""


def _owner_key(kind: Kind, obj: Object) -> Key:
    return Key(objects.namespace(obj), f"{kind.resource}/{objects.name(obj)}/{objects.uid(obj)}")


def reference_key(obj: Object, reference: dict[str, Any]) -> Key | None:
    """The key of a referenced owner; None for an unknown kind, or for a namespaced owner of a cluster-scoped object."""
    kind = kinds.by_api_version(str(reference.get("apiVersion")), str(reference.get("kind")))
    if kind is None or (kind.namespaced and not objects.namespace(obj)):  # a namespaced owner needs a namespace
        return None
    namespace = objects.namespace(obj) if kind.namespaced else ""
    return Key(namespace, f"{kind.resource}/{reference.get('name')}/{reference.get('uid')}")
