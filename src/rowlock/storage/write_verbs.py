"""The verbs that write, as plain functions over committed and staged objects: no clock, no disk, no asyncio.

A write is checked against everything staged before it, gets its revision, and waits in `take_staged()` for the commit that makes
it durable. `apply_committed` moves a durable batch into the committed state; `discard_staged` forgets everything that was staged,
because later writes were checked against earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from rowlock import kinds, objects
from rowlock.api import DELETE, WRITE, DeleteOptions, PatchType, View, WriteOptions
from rowlock.controllers.view.state import State, StoredChange
from rowlock.errors import BadRequest, TooLarge, Unsupported, already_exists, conflict, not_found
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage import lifecycle
from rowlock.storage.staged_view import StagedView

ChangeType = Literal["Added", "Modified", "Deleted"]
_UPDATABLE_SUBRESOURCES = ("status", "finalize", "scale", "ephemeralcontainers")
MAX_OBJECT_BYTES = 1_572_864  # bytes of one object: etcd's limit, so that what is accepted here is accepted there

encode = msgspec.json.Encoder().encode

GENERATE_ATTEMPTS = 8
"""Names that are tried for one object with generateName, as many as upstream."""


class Admission(Protocol):
    """Applies defaults, pruning, validation, canonical forms and managedFields. Pure; raises ApiError."""

    def create(self, kind: Kind, obj: Object, options: WriteOptions) -> Object: ...

    def update(self, kind: Kind, old: Object, new: Object, subresource: str, options: WriteOptions) -> Object: ...


class Patches(Protocol):
    """Applies the four patch types. `current` is None when the object does not exist (server-side apply creates it)."""

    def apply(
        self,
        kind: Kind,
        current: Object | None,
        patch: Any,
        type: PatchType,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Object: ...


class AlwaysAdmit:
    """Admission that accepts everything, and JSON merge patches only: for a store without the API room."""

    def create(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        return obj

    def update(self, kind: Kind, old: Object, new: Object, subresource: str, options: WriteOptions) -> Object:
        return new

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
        if type != "merge" or current is None:
            raise Unsupported(f"a store without the table of types knows merge patches only, not {type}")
        merged: Object = objects.merge_patch(current, patch)
        return merged


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What is injected: admission, patches, the clock and the source of uids."""

    admission: Callable[[View], Admission]
    """Makes the Admission, given a view that includes staged changes."""
    patches: Patches
    clock: Callable[[], float]
    new_uid: Callable[[], str]


class Core:
    """Committed state, staged changes, and the verbs between them."""

    def __init__(self, dependencies: Dependencies, reads: View | None = None) -> None:
        """`reads`: the objects that writes are checked against, instead of those of this core (`storage/rehearsal.py`)."""
        self.state = State()
        self.revision = 0
        """The last revision handed out; revisions of failed writes are never reused."""
        self.dependencies = dependencies
        self._staged: list[StoredChange] = []
        self._staged_view = StagedView(self.state)
        self.reads = reads or self._staged_view
        self._admission = dependencies.admission(self.reads)

    def latest_object(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object as the next write will find it."""
        return self.reads.get(kind, namespace, name)

    # ------------------------------------------------------------ verbs

    def create(self, kind: Kind, obj: Object, options: WriteOptions = WRITE, *, from_post: bool = True) -> Object:
        """Admit and stage a new object; `from_post` is False where a PUT or an apply creates it. Raises AlreadyExists, NotFound for
        its namespace, BadRequest without a name, and what admission raises. Upstream: `registry.Store.Create`."""
        dependencies, submitted = self.dependencies, obj
        obj = lifecycle.prepare_create(kind, obj, dependencies.new_uid(), dependencies.clock(), from_post=from_post)
        if not objects.meta(submitted).get("name"):
            obj = self._draw_free_name(kind, obj)
        if kind.namespaced:
            self._check_namespace(kind, obj, options)
        obj = self._admission.create(kind, obj, options)
        key = objects.key(obj)
        if not key.name:
            raise BadRequest("name or generateName is required")
        if (existing := self.latest_object(kind, *key)) is not None:
            generated = bool(objects.meta(obj).get("generateName"))
            raise already_exists(kind.plural, key.name, kind.group, objects.is_deleting(existing), generated)
        return (
            lifecycle.dry_run_result(obj, submitted) if options.dry_run else self.stage("Added", kind, key, obj, None)
        )

    def _draw_free_name(self, kind: Kind, obj: Object) -> Object:
        """With generateName, an unused name: after eight tries, as upstream, the create is refused."""
        meta = objects.meta(obj)
        for attempt in range(1, GENERATE_ATTEMPTS):
            if not meta.get("name") or self.latest_object(kind, *objects.key(obj)) is None:
                break
            meta = {**meta, "name": lifecycle.generate_name(meta["generateName"], f"{meta['uid']}/{attempt}")}
            obj = {**obj, "metadata": meta}
        return obj

    def update(
        self,
        kind: Kind,
        obj: Object,
        subresource: str = "",
        options: WriteOptions = WRITE,
        *,
        from_patch: bool = False,
    ) -> Object:
        """Replace an object, or the part that `subresource` covers. Raises NotFound, Conflict, Unsupported for a subresource that
        cannot be updated, and what admission raises. Upstream: `registry.Store.Update`."""
        if subresource not in ("", *_UPDATABLE_SUBRESOURCES) or (subresource and subresource not in kind.subresources):
            raise Unsupported(f'{kind.resource} has no subresource "{subresource}" that can be updated')
        old = self._get_existing(kind, objects.namespace(obj) if kind.namespaced else "", objects.name(obj))
        new = lifecycle.prepare_update(kind, old, obj, subresource, from_patch=from_patch)
        new = self._admission.update(kind, old, new, subresource, options)
        result = self._replace(kind, old, new, options.dry_run)
        return lifecycle.dry_run_result(result, obj) if options.dry_run and not subresource else result

    def patch(
        self,
        kind: Kind,
        key: Key,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:
        """Patch the newest object, so no retry is needed; type apply may create it. Raises NotFound, and what
        applying the patch and admission raise."""
        old = self.latest_object(kind, *key)
        is_service_status = kind is kinds.SERVICE and subresource == "status"  # `Patches` decides about it
        if old is None and (type != "apply" or (subresource and not is_service_status)):
            raise not_found(kind.plural, key.name, kind.group)
        new = self.dependencies.patches.apply(kind, old, patch, type, options, subresource=subresource)
        if old is None:
            return self.create(kind, lifecycle.check_apply_target(kind, key, new), options, from_post=False)
        if objects.name(new) != key.name or (kind.namespaced and objects.namespace(new) != key.namespace):
            new = {**new, "metadata": {**objects.meta(new), **_path_metadata(kind, key)}}
        return self.update(kind, new, subresource, options, from_patch=True)

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = DELETE) -> Object:
        old = self._get_existing(kind, namespace, name)
        lifecycle.check_deletable(kind, old, options.uid, options.revision)
        new = lifecycle.with_propagation(old, options.propagation)
        grace = lifecycle.grace_period(kind, new, options.grace)
        has_namespace_finalizers = kind is kinds.NAMESPACE and objects.dig(new, "spec.finalizers")
        if grace or lifecycle.finalizers(new) or has_namespace_finalizers or kind is kinds.POD:
            new = lifecycle.mark_deleted(kind, new, grace, self.dependencies.clock())
            if not lifecycle.can_remove(kind, new):
                return self._replace(kind, old, new, options.dry_run)
            if kind is kinds.POD and new is not old and not options.dry_run:  # watchers see its end first
                old = new = self.stage("Modified", kind, objects.key(new), new, old)
        return new if options.dry_run else self.stage("Deleted", kind, objects.key(new), new, old)

    def bind(
        self, namespace: str, pod: str, node: str, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> Object:
        old = self._get_existing(kinds.POD, namespace, pod)
        if uid and uid != objects.uid(old):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {objects.uid(old)}"
            raise conflict("pods/binding", pod, why)
        new = lifecycle.bind_pod(old, node, dict(annotations or {}), self.dependencies.clock())
        return self._replace(kinds.POD, old, new, dry_run=False, count=False)

    # ------------------------------------------------------------ batches

    @property
    def has_staged(self) -> bool:
        """Whether there are changes that the next commit will write."""
        return bool(self._staged)

    def take_staged(self) -> list[StoredChange]:
        """What has been staged since the last call, to be made durable."""
        batch, self._staged = self._staged, []
        return batch

    def apply_committed(self, batch: Sequence[StoredChange]) -> None:
        """Show changes that are durable now in the committed state."""
        for change in batch:
            self.state.apply(change)
            self._staged_view.unstage(change)

    def discard_staged(self) -> None:
        """Forget all staged changes, after a batch could not be made durable: they were checked against it."""
        self._staged.clear()
        self._staged_view.clear()

    # ------------------------------------------------------------ inside

    def _get_existing(self, kind: Kind, namespace: str, name: str) -> Object:
        obj = self.latest_object(kind, namespace, name)
        if obj is None:
            raise not_found(kind.plural, name, kind.group)
        return obj

    def _check_namespace(self, kind: Kind, obj: Object, options: WriteOptions) -> None:
        namespace = self._get_existing(kinds.NAMESPACE, "", objects.namespace(obj))
        is_own_event = (
            kind is kinds.EVENT and options.is_settled
        )  # of pods that end with their namespace: runs keep them
        if objects.is_deleting(namespace) and not is_own_event:
            raise lifecycle.namespace_terminating_error(kind, objects.name(obj), objects.namespace(obj))

    def _replace(self, kind: Kind, old: Object, new: Object, dry_run: bool, count: bool = True) -> Object:
        if new is old or lifecycle.is_unchanged(old, new):
            return old
        if count:
            new = lifecycle.bump_generation(kind, old, new)
        if dry_run:
            return new
        if lifecycle.can_remove(kind, new):
            self.stage("Deleted", kind, objects.key(old), old, old)  # watchers get the last stored object
            return new  # the client gets what it wrote, with the old resourceVersion
        return self.stage("Modified", kind, objects.key(new), new, old)

    def stage(self, type: ChangeType, kind: Kind, key: Key, obj: Object, old: Object | None) -> Object:
        revision = self.revision + 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
        encoded = encode(obj)
        check_size(type, kind, obj, encoded)
        self.revision = revision
        change = StoredChange(type, revision, kind, obj, old, encoded, objects.revision(old) if old else 0, key)
        self._staged.append(change)
        self._staged_view.stage(change)
        return obj


def check_size(type: ChangeType, kind: Kind, obj: Object, encoded: bytes) -> None:
    """Raises TooLarge for an object that etcd would not store. What is deleted may be."""
    if len(encoded) > MAX_OBJECT_BYTES and type != "Deleted":
        raise TooLarge(
            f'{kind.resource} "{objects.name(obj)}" has {len(encoded)} bytes; the limit is {MAX_OBJECT_BYTES}: '
            "keep large data in files"
        )


def _path_metadata(kind: Kind, key: Key) -> dict[str, str]:
    return {"name": key.name, "namespace": key.namespace} if kind.namespaced else {"name": key.name}
