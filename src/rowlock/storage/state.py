"""The committed objects in memory, with their indexes: the data behind a `View`.

Its only input is the changes in revision order, so a second State that receives them later is exactly a stale view
(the simulation uses that). Names are kept sorted per namespace: iteration is always by (namespace, name).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

_Group = TypeVar("_Group")
FIRST_KEY = Key("", "")
"""Sorts before every key of an object."""


class StoredChange(Change, frozen=True):
    """A change as the store keeps it: with the object's JSON, so that it is encoded only once.

    `previous` is the revision of the row that this one supersedes, 0 for a creation. `key` is the object's: every watcher
    asks for it."""

    encoded: bytes = b""
    previous: int = 0
    key: Key = FIRST_KEY

    @property
    def kind_and_key(self) -> tuple[Kind, Key]:
        """The kind and key of the changed object. Every stored change has a kind: bookmarks are never stored."""
        assert self.kind is not None  # bookmarks are never stored
        return self.kind, self.key


@dataclass(slots=True)
class _NamespaceObjects:
    """All objects of one kind in one namespace; `names` are sorted."""

    names: list[str] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)
    encoded: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _KindObjects:
    """All objects of one kind."""

    spaces: dict[str, _NamespaceObjects] = field(default_factory=dict)
    by_owner: dict[str, list[Key]] = field(default_factory=dict)
    by_label: dict[tuple[str, str, str], list[Key]] = field(default_factory=dict)

    def select_namespaces(self, namespace: str) -> list[tuple[str, _NamespaceObjects]]:
        if namespace:
            return [(namespace, self.spaces[namespace])] if namespace in self.spaces else []
        return sorted(self.spaces.items(), key=itemgetter(0))

    def objects_at(self, keys: Iterable[Key]) -> list[Object]:
        return [self.spaces[space].objects[name] for space, name in keys]


_NO_OBJECTS = _KindObjects()
_EMPTY: Object = {}


class State:
    """The newest committed object per key; implements `View`."""

    def __init__(self) -> None:
        self._revision = 0
        self._kinds: dict[Kind, _KindObjects] = {}
        self._observers: dict[Kind, list[Callable[[Change], None]]] = {}

    def observe(self, kinds: Iterable[Kind], observer: Callable[[Change], None]) -> None:
        """Call `observer` synchronously with every committed change of these kinds: for an index that must never lag behind."""
        for kind in kinds:
            self._observers.setdefault(kind, []).append(observer)

    # ------------------------------------------------------------ View

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        space = self._kinds.get(kind, _NO_OBJECTS).spaces.get(namespace)
        return space.objects.get(name) if space else None

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        if kind not in self._kinds:
            return ()
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        return [space.objects[name] for _, space in spaces for name in space.names]

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        kind_objects = self._kinds.get(kind, _NO_OBJECTS)
        return kind_objects.objects_at(kind_objects.by_owner.get(uid, ()))

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        kind_objects = self._kinds.get(kind, _NO_OBJECTS)
        return kind_objects.objects_at(kind_objects.by_label.get((namespace, label, value), ()))

    # ------------------------------------------------------------ for the store

    def get_encoded(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        """The JSON of the newest object of this key; None when there is none."""
        space = self._kinds.get(kind, _NO_OBJECTS).spaces.get(namespace)
        return space.encoded.get(name) if space else None

    def get_encoded_if_newest(self, kind: Kind, obj: Object) -> bytes | None:
        """The JSON of this very object; None when it is no longer the newest."""
        meta, kind_objects = obj["metadata"], self._kinds.get(kind, _NO_OBJECTS)
        space = kind_objects.spaces.get(meta.get("namespace") or "")
        return space.encoded.get(meta["name"]) if space and space.objects.get(meta["name"]) is obj else None

    def all_encoded(self, kind: Kind, namespace: str = "") -> list[bytes]:
        """The JSON of `all`, in its order."""
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        return [space.encoded[name] for _, space in spaces for name in space.names]

    def items(self, kind: Kind, namespace: str = "", after: Key = FIRST_KEY) -> Iterator[tuple[Key, Object]]:
        """Keys and objects in order, those after a key. A lazy iterator."""
        for space, entries in self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace):
            if space < after.namespace:
                continue
            start = bisect_right(entries.names, after.name) if space == after.namespace else 0
            for name in entries.names[start:]:
                yield Key(space, name), entries.objects[name]

    def freeze(self, kind: Kind, namespace: str = "") -> Iterator[tuple[Key, Object, bytes]]:
        """A snapshot of keys, objects and their JSON, in order, taken at the call. The tables are copied at once (a hundred
        thousand objects in a few milliseconds); tuples are made as the iterator is read."""
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        copies = [
            (space, entries.names[:], entries.objects.copy(), entries.encoded.copy()) for space, entries in spaces
        ]
        return (
            (Key(space, name), values[name], encoded.get(name, b""))
            for space, names, values, encoded in copies
            for name in names
        )

    def count(self, kind: Kind, namespace: str = "", after: Key = FIRST_KEY) -> int:
        """How many objects there are after a key."""
        selected = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        total = sum(len(entries.names) for space, entries in selected if space >= after.namespace)
        return total - sum(
            bisect_right(entries.names, after.name) for space, entries in selected if space == after.namespace
        )

    def counts(self) -> dict[Kind, int]:
        """How many objects there are of each kind that has any."""
        return {kind: self.count(kind) for kind in self._kinds if self.count(kind)}

    def advance_revision(self, revision: int) -> None:
        """Advance the revision without a change: those up to `revision` may have been compacted away."""
        self._revision = max(self._revision, revision)

    def apply(self, change: Change) -> None:
        """The next change. A Bookmark only moves the revision."""
        self._revision = max(self._revision, change.revision)
        if change.kind is None:
            return
        kind_objects = self._kinds.get(change.kind)
        if kind_objects is None:
            kind_objects = self._kinds[change.kind] = _KindObjects()
        key = change.key if isinstance(change, StoredChange) else objects.key(change.object)
        if change.type == "Deleted":
            _remove(kind_objects, key)
        else:
            _put(kind_objects, key, change.object, change.encoded if isinstance(change, StoredChange) else b"")
        for observer in self._observers.get(change.kind, ()):
            observer(change)

    def load(self, kind: Kind, key: Key, obj: Object, encoded: bytes) -> None:
        """One object of a recovery; cheapest in the order of their keys."""
        _put(self._kinds.setdefault(kind, _KindObjects()), key, obj, encoded)


def _put(kind_objects: _KindObjects, key: Key, obj: Object, encoded: bytes) -> None:
    space = kind_objects.spaces.get(key.namespace)
    if space is None:
        space = kind_objects.spaces[key.namespace] = _NamespaceObjects()
    before = space.objects.get(key.name)
    space.objects[key.name] = obj
    if encoded:
        space.encoded[key.name] = encoded
    if before is None:
        insort(space.names, key.name)
    _reindex(kind_objects, key, before or _EMPTY, obj)


def _remove(kind_objects: _KindObjects, key: Key) -> None:
    space = kind_objects.spaces.get(key.namespace)
    before = space.objects.pop(key.name, None) if space else None
    if space is None or before is None:
        return
    space.encoded.pop(key.name, None)
    del space.names[bisect_left(space.names, key.name)]
    if not space.names:
        del kind_objects.spaces[key.namespace]
    _reindex(kind_objects, key, before, _EMPTY)


def _reindex(kind_objects: _KindObjects, key: Key, before: Object, after: Object) -> None:
    was, now = before.get("metadata") or _EMPTY, after.get("metadata") or _EMPTY
    if was.get("ownerReferences") != now.get("ownerReferences"):
        owners_was, owners_now = _owner_uids(was), _owner_uids(now)
        for uid in owners_was - owners_now:
            _remove_key(kind_objects.by_owner, uid, key)
        for uid in owners_now - owners_was:
            insort(kind_objects.by_owner.setdefault(uid, []), key)
    if was.get("labels") != now.get("labels"):
        labels_was, labels_now = was.get("labels") or _EMPTY, now.get("labels") or _EMPTY
        for label in INDEXED:
            old, new = labels_was.get(label), labels_now.get(label)
            if old != new and old is not None:
                _remove_key(kind_objects.by_label, (key.namespace, label, old), key)
            if old != new and new is not None:
                insort(kind_objects.by_label.setdefault((key.namespace, label, new), []), key)


def _owner_uids(meta: dict[str, object]) -> set[str]:
    owners = meta.get("ownerReferences")
    return {str(owner.get("uid")) for owner in owners} if isinstance(owners, list) else set()


def _remove_key(groups: dict[_Group, list[Key]], group: _Group, key: Key) -> None:
    """Remove a key from a sorted group, and the group when it is empty."""
    members = groups[group]
    del members[bisect_left(members, key)]
    if not members:
        del groups[group]
