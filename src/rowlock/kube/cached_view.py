"""A `View` of the last known objects of a real cluster. `cache.py` feeds it with lists and changes.

It also adds the previous object to each `Change`, which a watch does not send. A full list is applied as a `Replacement`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.controllers.view.object_table import has_ended
from rowlock.kinds import POD, Kind
from rowlock.objects import Key, Object

CHANGES_IN_PLACE = 500
"""Maximum of differences that are applied one by one in one turn of the event loop (some 10 ms). For more the kind is rebuilt beside the
current state."""


@dataclass(slots=True)
class _CachedNamespace:
    """One kind in one namespace; `names` are sorted."""

    names: list[str] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class _CachedKind:
    """One kind. The indexes hold keys as dicts without values, because the order of sets is random."""

    spaces: dict[str, _CachedNamespace] = field(default_factory=dict)
    by_owner: defaultdict[str, dict[Key, None]] = field(default_factory=lambda: defaultdict(dict))
    by_label: defaultdict[tuple[str, str, str], dict[Key, None]] = field(default_factory=lambda: defaultdict(dict))


_EMPTY_KIND = _CachedKind()


class CachedView:
    """`revision` is the newest revision of all kinds; some kinds may lag behind it for a moment."""

    def __init__(self) -> None:
        self._revision = 0
        self._kinds: dict[Kind, _CachedKind] = {}

    # ------------------------------------------------------------ View

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        space = self._kinds.get(kind, _EMPTY_KIND).spaces.get(namespace)
        return space.objects.get(name) if space else None

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        found = self.get(kind, namespace, name)
        return None if found is None else objects.meta(found)

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        found = self.get(kind, namespace, name)
        return found is not None and has_ended(kind, found)

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        spaces = self._kinds.get(kind, _EMPTY_KIND).spaces
        namespaces = ([namespace] if namespace in spaces else []) if namespace else sorted(spaces)
        return [spaces[ns].objects[name] for ns in namespaces for name in spaces[ns].names]

    def keys(self, kind: Kind, namespace: str = "") -> Iterable[Key]:
        spaces = self._kinds.get(kind, _EMPTY_KIND).spaces
        namespaces = ([namespace] if namespace in spaces else []) if namespace else sorted(spaces)
        return [Key(ns, name) for ns in namespaces for name in spaces[ns].names]

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        cached = self._kinds.get(kind, _EMPTY_KIND)
        return _objects_at(cached, cached.by_owner.get(uid, {}))

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        cached = self._kinds.get(kind, _EMPTY_KIND)
        return _objects_at(cached, cached.by_label.get((namespace, label, value), {}))

    # ------------------------------------------------------------ feeding

    def apply(self, change: Change) -> Iterator[Change]:
        """Apply one change of a watch and yield it with the previous object; yields nothing if it was applied before."""
        assert change.kind is not None
        self._revision = max(self._revision, change.revision)
        if change.type == "Deleted":
            old = self._remove(change.kind, objects.key(change.object))
            if old is not None:
                yield Change("Deleted", change.revision, change.kind, change.object, old)
        elif change.type != "Bookmark":
            yield from self._put(change.kind, change.object)

    def initial_changes(self) -> Iterator[Change]:
        """The current state for a new subscriber: Added changes, pods last, and a bookmark. Changes are created lazily: ten thousand at
        once would block the event loop."""
        state = [(kind, obj) for kind in sorted(self._kinds, key=lambda kind: kind is POD) for obj in self.all(kind)]
        return _changes_to(state, self._revision)

    def _put(self, kind: Kind, obj: Object) -> list[Change]:
        key = objects.key(obj)
        cached = self._kinds.setdefault(kind, _CachedKind())
        space = cached.spaces.setdefault(key.namespace, _CachedNamespace())
        old = space.objects.get(key.name)
        if old is None:
            insort(space.names, key.name)
        elif objects.revision(old) == objects.revision(obj):
            return []
        else:
            _unindex(cached, key, old)
        space.objects[key.name] = obj
        _index(cached, key, obj)
        return [_change_to(kind, old, obj)]

    def _remove(self, kind: Kind, key: Key) -> Object | None:
        cached = self._kinds.get(kind, _EMPTY_KIND)
        space = cached.spaces.get(key.namespace)
        old = space.objects.pop(key.name, None) if space else None
        if old is not None and space is not None:
            del space.names[bisect_left(space.names, key.name)]
            if not space.names:
                del cached.spaces[key.namespace]
            _unindex(cached, key, old)
        return old


class Replacement:
    """The next state of a kind, compared with the current one object by object. `commit` applies it in one step, so that a reader sees the
    old state or the new one. Nothing else may change that kind meanwhile."""

    def __init__(self, view: CachedView, kind: Kind) -> None:
        self._view, self._kind = view, kind
        self._keys: dict[Key, None] = {}
        self._changed: dict[Key, Object] = {}
        self._deleted: list[Object] = []
        self._rebuilt: _CachedKind | None = None
        self._put: list[Change] = []

    def take(self, change: Change) -> None:
        """Add one change to the new state, which is empty at first."""
        key = objects.key(change.object)
        self._changed.pop(key, None)
        if change.type == "Deleted":
            self._keys.pop(key, None)
            return
        self._keys[key] = None
        old = self._view.get(self._kind, *key)
        if old is None or objects.revision(old) != objects.revision(change.object):
            self._changed[key] = change.object

    def prepare(self) -> Iterator[None]:
        """The long part, one step per yield: find deleted objects and, if there are many differences, rebuild the kind with its indexes."""
        for obj in self._view.all(self._kind):
            if objects.key(obj) not in self._keys:
                self._deleted.append(obj)
            yield
        if len(self._changed) + len(self._deleted) <= CHANGES_IN_PLACE:
            return
        rebuilt = _CachedKind()
        for key in self._keys:
            obj = self._changed.get(key) or self._view.get(self._kind, *key) or {}
            space = rebuilt.spaces.setdefault(key.namespace, _CachedNamespace())
            space.names.append(key.name)
            space.objects[key.name] = obj
            _index(rebuilt, key, obj)
            yield
        for space in rebuilt.spaces.values():
            space.names.sort()
        for key, obj in self._changed.items():
            self._put.append(_change_to(self._kind, self._view.get(self._kind, *key), obj))
            yield
        self._rebuilt = rebuilt

    def commit(self, revision: int) -> list[Change]:
        """Apply the new state to the view at this revision of the cluster. Returns the differences as changes, deletions first."""
        view, kind = self._view, self._kind
        deleted = [Change("Deleted", revision, kind, old, old) for old in self._deleted]
        if self._rebuilt is None:
            for old in self._deleted:
                view._remove(kind, objects.key(old))
            put = [change for obj in self._changed.values() for change in view._put(kind, obj)]
        else:
            put = self._put
            view._kinds[kind] = self._rebuilt
        view._revision = max(view._revision, revision)
        return deleted + put


def _changes_to(state: list[tuple[Kind, Object]], revision: int) -> Iterator[Change]:
    for kind, obj in state:
        yield _change_to(kind, None, obj)
    yield Change("Bookmark", revision)


def _change_to(kind: Kind, old: Object | None, obj: Object) -> Change:
    return Change("Modified" if old is not None else "Added", objects.revision(obj), kind, obj, old)


def _objects_at(cached: _CachedKind, keys: Iterable[Key]) -> list[Object]:
    return [cached.spaces[key.namespace].objects[key.name] for key in sorted(keys)]


def _owner_uids(obj: Object) -> set[str]:
    return {str(owner.get("uid")) for owner in objects.meta(obj).get("ownerReferences") or ()}


def _label_keys(key: Key, obj: Object) -> Iterator[tuple[str, str, str]]:
    labels = objects.labels(obj)
    return ((key.namespace, label, labels[label]) for label in INDEXED if label in labels)


def _index(cached: _CachedKind, key: Key, obj: Object) -> None:
    for uid in _owner_uids(obj):
        cached.by_owner[uid][key] = None
    for label_key in _label_keys(key, obj):
        cached.by_label[label_key][key] = None


def _unindex(cached: _CachedKind, key: Key, obj: Object) -> None:
    for uid in _owner_uids(obj):
        cached.by_owner[uid].pop(key, None)
        if not cached.by_owner[uid]:
            del cached.by_owner[uid]
    for label_key in _label_keys(key, obj):
        cached.by_label[label_key].pop(key, None)
        if not cached.by_label[label_key]:
            del cached.by_label[label_key]
