"""A `View` of the last known objects of a real cluster. `cache.py` feeds it with lists and changes.

It also completes `Change`s with the previous object, which a watch does not send.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.kinds import POD, Kind
from rowlock.objects import Key, Object


@dataclass(slots=True)
class _CachedNamespace:
    """One kind in one namespace; `names` are sorted."""

    names: list[str] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class _CachedKind:
    """One kind. The indexes hold keys as dicts without values: sets that remember no order would be random."""

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

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        spaces = self._kinds.get(kind, _EMPTY_KIND).spaces
        namespaces = ([namespace] if namespace in spaces else []) if namespace else sorted(spaces)
        return [spaces[ns].objects[name] for ns in namespaces for name in spaces[ns].names]

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        cached = self._kinds.get(kind, _EMPTY_KIND)
        return _objects_at(cached, cached.by_owner.get(uid, {}))

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        cached = self._kinds.get(kind, _EMPTY_KIND)
        return _objects_at(cached, cached.by_label.get((namespace, label, value), {}))

    # ------------------------------------------------------------ feeding

    def replace(self, kind: Kind, state: Iterable[Object], revision: int) -> list[Change]:
        """Replace all objects of a kind, and return the differences as changes."""
        fresh = {objects.key(obj): obj for obj in state}
        existing = {objects.key(obj): obj for obj in self.all(kind)}
        self._revision = max(self._revision, revision)
        deleted = [Change("Deleted", revision, kind, old, old) for key, old in existing.items() if key not in fresh]
        for change in deleted:
            self._remove(kind, objects.key(change.object))
        return deleted + [change for obj in fresh.values() for change in self._put(kind, obj)]

    def apply(self, change: Change) -> Iterator[Change]:
        """Apply one change of a watch; yields nothing when it was applied before."""
        assert change.kind is not None
        self._revision = max(self._revision, change.revision)
        if change.type == "Deleted":
            old = self._remove(change.kind, objects.key(change.object))
            if old is not None:
                yield Change("Deleted", change.revision, change.kind, change.object, old)
        elif change.type != "Bookmark":
            yield from self._put(change.kind, change.object)

    def initial_changes(self) -> list[Change]:
        """The state for a new subscriber: Added changes, pods last, and a bookmark."""
        ordered = sorted(self._kinds, key=lambda kind: kind is POD)
        added = [Change("Added", objects.revision(obj), kind, obj) for kind in ordered for obj in self.all(kind)]
        return [*added, Change("Bookmark", self._revision)]

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
        return [Change("Modified" if old is not None else "Added", objects.revision(obj), kind, obj, old)]

    def _remove(self, kind: Kind, key: Key) -> Object | None:
        cached = self._kinds.get(kind, _EMPTY_KIND)
        space = cached.spaces.get(key.namespace)
        old = space.objects.pop(key.name, None) if space else None
        if old is not None and space is not None:
            space.names.remove(key.name)
            if not space.names:
                del cached.spaces[key.namespace]
            _unindex(cached, key, old)
        return old


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
