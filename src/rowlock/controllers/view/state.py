"""The committed objects in memory, with their indexes: the data behind a `View`.

Its only input is the changes in revision order, so a second State that receives them later is exactly a stale view
(the simulation uses that). Names are kept sorted per namespace: iteration is always by (namespace, name). Objects that are seldom read
are kept as JSON alone (`object_table.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.controllers.view.object_table import (
    DECODED_LIMIT,
    ENDING_KINDS,
    DecodedObjects,
    ObjectList,
    ObjectTable,
    decode,
    decode_metadata,
    fields_of_seldom_read,
    owner_uids,
)
from rowlock.kinds import WORKLOADS, Kind
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
class _KindObjects:
    """All objects of one kind."""

    spaces: dict[str, ObjectTable] = field(default_factory=dict)
    by_owner: dict[str, list[Key]] = field(default_factory=dict)
    by_label: dict[tuple[str, str, str], list[Key]] = field(default_factory=dict)

    def select_namespaces(self, namespace: str) -> list[tuple[str, ObjectTable]]:
        if namespace:
            return [(namespace, self.spaces[namespace])] if namespace in self.spaces else []
        return sorted(self.spaces.items(), key=itemgetter(0))


_NO_OBJECTS = _KindObjects()
_NO_FIELDS: dict[str, Any] = {}


class State:
    """The newest committed object per key; implements `View`. `decoded_limit`: see `DecodedObjects`."""

    def __init__(self, decoded_limit: int = DECODED_LIMIT) -> None:
        self._revision = 0
        self._decoded = DecodedObjects(decoded_limit)
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
        return self._decoded.read(space, name) if space else None

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        space = self._kinds.get(kind, _NO_OBJECTS).spaces.get(namespace)
        return space.indexed_fields(name) or None if space else None

    def all(self, kind: Kind, namespace: str = "") -> Sequence[Object]:
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        return ObjectList([entry for _, space in spaces for entry in space.entries()])

    def all_unfinished(self, kind: Kind, namespace: str = "") -> list[Object]:
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        unfinished = ((entries, name) for _, entries in spaces for name in entries.names if name not in entries.ended)
        return [obj for entries, name in unfinished if (obj := self._decoded.read(entries, name)) is not None]

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        space = self._kinds.get(kind, _NO_OBJECTS).spaces.get(namespace)
        return space is not None and name in space.ended

    def keys(self, kind: Kind, namespace: str = "") -> list[Key]:
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        return [Key(space, name) for space, entries in spaces for name in entries.names]

    def by_owner(self, kind: Kind, uid: str) -> Sequence[Object]:
        kind_objects = self._kinds.get(kind, _NO_OBJECTS)
        return self._objects_at(kind_objects, kind_objects.by_owner.get(uid, ()))

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Sequence[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        kind_objects = self._kinds.get(kind, _NO_OBJECTS)
        return self._objects_at(kind_objects, kind_objects.by_label.get((namespace, label, value), ()))

    def _objects_at(self, kind_objects: _KindObjects, keys: Iterable[Key]) -> list[Object]:
        found = (self._decoded.read(kind_objects.spaces[space], name) for space, name in keys)
        return [obj for obj in found if obj is not None]

    # ------------------------------------------------------------ for the store

    def get_encoded(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        """The JSON of the newest object of this key; None when there is none."""
        space = self._kinds.get(kind, _NO_OBJECTS).spaces.get(namespace)
        return space.encoded.get(name) if space else None

    def get_encoded_if_newest(self, kind: Kind, obj: Object) -> bytes | None:
        """The JSON of this very object; None when it is no longer the newest."""
        meta, kind_objects = obj["metadata"], self._kinds.get(kind, _NO_OBJECTS)
        space = kind_objects.spaces.get(meta.get("namespace") or "")
        return space.encoded.get(meta["name"]) if space and space.decoded.get(meta["name"]) is obj else None

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
                if entry := entries.decoded.get(name) or entries.encoded.get(name):
                    yield Key(space, name), decode(entry) if isinstance(entry, bytes) else entry

    def freeze(
        self, kind: Kind, namespace: str = "", *, only_metadata: bool = False
    ) -> Iterator[tuple[Key, Object, bytes]]:
        """A snapshot of keys, objects and their JSON, in order, taken at the call. The tables are copied at once (a hundred
        thousand objects in a few milliseconds); tuples are made, and objects decoded, as the iterator is read. With `only_metadata`
        objects that are not decoded have nothing but what `View.metadata` returns."""
        read = decode_metadata if only_metadata else decode
        spaces = self._kinds.get(kind, _NO_OBJECTS).select_namespaces(namespace)
        copies = [
            (space, entries.names[:], entries.decoded.copy(), entries.encoded.copy()) for space, entries in spaces
        ]
        return (
            (Key(space, name), decoded.get(name) or read(encoded[name]), encoded.get(name, b""))
            for space, names, decoded, encoded in copies
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
            self._remove(kind_objects, key)
        else:
            encoded = change.encoded if isinstance(change, StoredChange) else b""
            space = _index(kind_objects, change.kind, key, objects.meta(change.object), encoded)
            self._decoded.put(space, key.name, change.object)
        if change.kind in WORKLOADS:
            is_unfinished = change.type != "Deleted" and not self.has_ended(change.kind, *key)
            self._note_workload(objects.uid(change.object), is_unfinished)
        for observer in self._observers.get(change.kind, ()):
            observer(change)

    def load(self, kind: Kind, key: Key, encoded: bytes) -> None:
        """One object of a recovery; cheapest in the order of their keys. One that is seldom read is not decoded."""
        if (fields := fields_of_seldom_read(kind, encoded)) is not None:
            space = _index(self._kinds.setdefault(kind, _KindObjects()), kind, key, fields, encoded)
            if kind in ENDING_KINDS:
                space.ended.add(key.name)
            return
        obj = decode(encoded)
        space = _index(self._kinds.setdefault(kind, _KindObjects()), kind, key, objects.meta(obj), encoded)
        self._decoded.put(space, key.name, obj)
        if kind in WORKLOADS:
            self._note_workload(objects.uid(obj), is_unfinished=True)

    def _note_workload(self, uid: str, is_unfinished: bool) -> None:
        """What an unfinished workload owns stays decoded; after its end, only as long as everything else that is seldom read."""
        if not self._decoded.note_workload(uid, is_unfinished):
            return
        for kind_objects in self._kinds.values():
            for space, name in kind_objects.by_owner.get(uid, ()):
                table = kind_objects.spaces[space]
                if (obj := table.decoded.get(name)) is not None:
                    self._decoded.put(table, name, obj)

    def _remove(self, kind_objects: _KindObjects, key: Key) -> None:
        space = kind_objects.spaces.get(key.namespace)
        position = bisect_left(space.names, key.name) if space else 0
        if space is None or space.names[position : position + 1] != [key.name]:
            return
        before = space.indexed_fields(key.name)
        self._decoded.drop(space, key.name)
        space.encoded.pop(key.name, None)
        del space.names[position]
        if not space.names:
            del kind_objects.spaces[key.namespace]
        _reindex(kind_objects, key, before, _NO_FIELDS)


def _index(kind_objects: _KindObjects, kind: Kind, key: Key, fields: dict[str, Any], encoded: bytes) -> ObjectTable:
    """Put an object's JSON into its table and its metadata into the indexes. Returns the table."""
    space = kind_objects.spaces.get(key.namespace)
    if space is None:
        space = kind_objects.spaces[key.namespace] = ObjectTable(kind)
    before = space.indexed_fields(key.name)
    if key.name not in space.decoded and key.name not in space.encoded:
        insort(space.names, key.name)
    if encoded:
        space.encoded[key.name] = encoded
    else:
        space.encoded.pop(key.name, None)
    _reindex(kind_objects, key, before, fields)
    return space


def _reindex(kind_objects: _KindObjects, key: Key, was: dict[str, Any], now: dict[str, Any]) -> None:
    """Update the indexes; `was` and `now` are an object's metadata."""
    if was.get("ownerReferences") != now.get("ownerReferences"):
        owners_was, owners_now = owner_uids(was), owner_uids(now)
        for uid in owners_was - owners_now:
            _remove_key(kind_objects.by_owner, uid, key)
        for uid in owners_now - owners_was:
            insort(kind_objects.by_owner.setdefault(uid, []), key)
    if was.get("labels") != now.get("labels"):
        for label in INDEXED:
            old, new = _label(was, label), _label(now, label)
            if old != new and old is not None:
                _remove_key(kind_objects.by_label, (key.namespace, label, old), key)
            if old != new and new is not None:
                insort(kind_objects.by_label.setdefault((key.namespace, label, new), []), key)


def _label(meta: dict[str, Any], label: str) -> str | None:
    labels = meta.get("labels")
    value = labels.get(label) if isinstance(labels, dict) else None
    return value if isinstance(value, str) else None


def _remove_key(groups: dict[_Group, list[Key]], group: _Group, key: Key) -> None:
    """Remove a key from a sorted group, and the group when it is empty."""
    members = groups[group]
    del members[bisect_left(members, key)]
    if not members:
        del groups[group]
