"""The committed objects in memory, with their indexes: what a `View` looks at.

Fed with changes in the order of their revisions and nothing else, so a second State that is fed later is exactly a
stale view (the simulation uses that). Names are kept sorted per namespace: iteration is always (namespace, name).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

_Group = TypeVar("_Group")
_Member = TypeVar("_Member", str, Key)


@dataclass(frozen=True, slots=True)
class Stored(Change):
    """A change as the store keeps it: with the object's JSON, so that nobody encodes it twice.

    `previous` is the revision of the row that this one supersedes, 0 for a creation."""

    encoded: bytes = b""
    previous: int = 0

    @property
    def key(self) -> Key:
        return objects.key(self.object)

    @property
    def place(self) -> tuple[Kind, Key]:
        assert self.kind is not None  # bookmarks are never stored
        return self.kind, objects.key(self.object)


@dataclass(slots=True)
class _Shelf:
    """All objects of one kind."""

    objects: dict[Key, Object] = field(default_factory=dict)
    encoded: dict[Key, bytes] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    owned: dict[str, list[Key]] = field(default_factory=dict)
    labelled: dict[tuple[str, str, str], list[Key]] = field(default_factory=dict)


class State:
    """The newest committed object per key; implements `View`."""

    def __init__(self) -> None:
        self._revision = 0
        self._shelves: dict[Kind, _Shelf] = {}

    # ------------------------------------------------------------ View

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        shelf = self._shelves.get(kind)
        return shelf.objects.get(Key(namespace, name)) if shelf else None

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        shelf = self._shelves.get(kind)
        return [shelf.objects[key] for key in _keys(shelf, namespace)] if shelf else []

    def owned(self, kind: Kind, uid: str) -> Iterable[Object]:
        shelf = self._shelves.get(kind)
        return [shelf.objects[key] for key in shelf.owned.get(uid, ())] if shelf else []

    def labelled(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        shelf = self._shelves.get(kind)
        return [shelf.objects[key] for key in shelf.labelled.get((namespace, label, value), ())] if shelf else []

    # ------------------------------------------------------------ for the store

    def encoded(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        shelf = self._shelves.get(kind)
        return shelf.encoded.get(Key(namespace, name)) if shelf else None

    def keys(self, kind: Kind, namespace: str = "") -> list[Key]:
        shelf = self._shelves.get(kind)
        return _keys(shelf, namespace) if shelf else []

    def counts(self) -> dict[Kind, int]:
        return {kind: len(shelf.objects) for kind, shelf in self._shelves.items() if shelf.objects}

    def skip(self, revision: int) -> None:
        """Everything up to `revision` has been seen, though some of it is no longer told (compaction)."""
        self._revision = max(self._revision, revision)

    def apply(self, change: Change) -> None:
        """The next change. A Bookmark only moves the revision."""
        self._revision = max(self._revision, change.revision)
        if change.kind is None:
            return
        shelf = self._shelves.get(change.kind)
        if shelf is None:
            shelf = self._shelves[change.kind] = _Shelf()
        key = objects.key(change.object)
        before = shelf.objects.get(key)
        if change.type == "Deleted":
            if before is not None:
                _remove(shelf, key, before)
            return
        _put(shelf, key, before, change.object)
        if isinstance(change, Stored):
            shelf.encoded[key] = change.encoded


def _keys(shelf: _Shelf, namespace: str) -> list[Key]:
    spaces = [namespace] if namespace else sorted(shelf.names)
    return [Key(space, name) for space in spaces for name in shelf.names.get(space, ())]


def _put(shelf: _Shelf, key: Key, before: Object | None, after: Object) -> None:
    shelf.objects[key] = after
    if before is None:
        insort(shelf.names.setdefault(key.namespace, []), key.name)
    _reindex(shelf, key, before or {}, after)


def _remove(shelf: _Shelf, key: Key, before: Object) -> None:
    del shelf.objects[key]
    shelf.encoded.pop(key, None)
    _take(shelf.names, key.namespace, key.name)
    _reindex(shelf, key, before, {})


def _reindex(shelf: _Shelf, key: Key, before: Object, after: Object) -> None:
    was, now = objects.meta(before), objects.meta(after)
    if was.get("ownerReferences") != now.get("ownerReferences"):
        owners_was, owners_now = _owners(was), _owners(now)
        for uid in owners_was - owners_now:
            _take(shelf.owned, uid, key)
        for uid in owners_now - owners_was:
            insort(shelf.owned.setdefault(uid, []), key)
    if was.get("labels") != now.get("labels"):
        labels_was, labels_now = objects.labels(before), objects.labels(after)
        for label in INDEXED:
            old, new = labels_was.get(label), labels_now.get(label)
            if old != new and old is not None:
                _take(shelf.labelled, (key.namespace, label, old), key)
            if old != new and new is not None:
                insort(shelf.labelled.setdefault((key.namespace, label, new), []), key)


def _owners(meta: dict[str, object]) -> set[str]:
    owners = meta.get("ownerReferences")
    return {str(owner.get("uid")) for owner in owners} if isinstance(owners, list) else set()


def _take(groups: dict[_Group, list[_Member]], group: _Group, value: _Member) -> None:
    """Remove a value from a sorted group, and the group when it is empty."""
    members = groups[group]
    del members[bisect_left(members, value)]
    if not members:
        del groups[group]
