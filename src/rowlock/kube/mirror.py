"""The objects of a real cluster as last seen: a `View`, fed by `cache.py` with whole kinds and single changes.

It also turns what it is fed into `Change`s that know the object before, because a watch does not tell it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rowlock import objects
from rowlock.api import INDEXED, Change
from rowlock.kinds import Kind
from rowlock.objects import Key, Object


@dataclass(slots=True)
class _Space:
    """One kind in one namespace; `names` are sorted."""

    names: list[str] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class _Held:
    """One kind. The indexes hold keys as dicts without values: sets that remember no order would be random."""

    spaces: dict[str, _Space] = field(default_factory=dict)
    owned: defaultdict[str, dict[Key, None]] = field(default_factory=lambda: defaultdict(dict))
    labelled: defaultdict[tuple[str, str, str], dict[Key, None]] = field(default_factory=lambda: defaultdict(dict))


_NOTHING = _Held()


class Mirror:
    """`revision` is the newest that any kind has reached; kinds may lag each other by a moment."""

    def __init__(self) -> None:
        self._revision = 0
        self._held: dict[Kind, _Held] = {}

    # ------------------------------------------------------------ View

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        space = self._held.get(kind, _NOTHING).spaces.get(namespace)
        return space.objects.get(name) if space else None

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        spaces = self._held.get(kind, _NOTHING).spaces
        wanted = ([namespace] if namespace in spaces else []) if namespace else sorted(spaces)
        return [spaces[ns].objects[name] for ns in wanted for name in spaces[ns].names]

    def owned(self, kind: Kind, uid: str) -> Iterable[Object]:
        held = self._held.get(kind, _NOTHING)
        return _chosen(held, held.owned.get(uid, {}))

    def labelled(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if label not in INDEXED or not namespace:
            return [o for o in self.all(kind, namespace) if objects.labels(o).get(label) == value]
        held = self._held.get(kind, _NOTHING)
        return _chosen(held, held.labelled.get((namespace, label, value), {}))

    # ------------------------------------------------------------ feeding

    def replace(self, kind: Kind, state: Iterable[Object], revision: int) -> list[Change]:
        """The kind is exactly this now; answers what that changes."""
        fresh = {objects.key(obj): obj for obj in state}
        known = {objects.key(obj): obj for obj in self.all(kind)}
        self._revision = max(self._revision, revision)
        gone = [Change("Deleted", revision, kind, old, old) for key, old in known.items() if key not in fresh]
        for change in gone:
            self._forget(kind, objects.key(change.object))
        return gone + [change for obj in fresh.values() for change in self._put(kind, obj)]

    def apply(self, change: Change) -> Iterator[Change]:
        """One change of a watch; seen again, it is no change."""
        assert change.kind is not None
        self._revision = max(self._revision, change.revision)
        if change.type == "Deleted":
            old = self._forget(change.kind, objects.key(change.object))
            if old is not None:
                yield Change("Deleted", change.revision, change.kind, change.object, old)
        elif change.type != "Bookmark":
            yield from self._put(change.kind, change.object)

    def everything(self) -> list[Change]:
        """The state as Added changes and a bookmark: how a subscriber begins."""
        added = [Change("Added", objects.revision(obj), kind, obj) for kind in self._held for obj in self.all(kind)]
        return [*added, Change("Bookmark", self._revision)]

    def _put(self, kind: Kind, obj: Object) -> list[Change]:
        key = objects.key(obj)
        held = self._held.setdefault(kind, _Held())
        space = held.spaces.setdefault(key.namespace, _Space())
        old = space.objects.get(key.name)
        if old is None:
            insort(space.names, key.name)
        elif objects.revision(old) == objects.revision(obj):
            return []
        else:
            _unindex(held, key, old)
        space.objects[key.name] = obj
        _index(held, key, obj)
        return [Change("Modified" if old is not None else "Added", objects.revision(obj), kind, obj, old)]

    def _forget(self, kind: Kind, key: Key) -> Object | None:
        held = self._held.get(kind, _NOTHING)
        space = held.spaces.get(key.namespace)
        old = space.objects.pop(key.name, None) if space else None
        if old is not None and space is not None:
            space.names.remove(key.name)
            if not space.names:
                del held.spaces[key.namespace]
            _unindex(held, key, old)
        return old


def _chosen(held: _Held, keys: Iterable[Key]) -> list[Object]:
    return [held.spaces[key.namespace].objects[key.name] for key in sorted(keys)]


def _owners(obj: Object) -> set[str]:
    return {str(owner.get("uid")) for owner in objects.meta(obj).get("ownerReferences") or ()}


def _marks(key: Key, obj: Object) -> Iterator[tuple[str, str, str]]:
    labels = objects.labels(obj)
    return ((key.namespace, label, labels[label]) for label in INDEXED if label in labels)


def _index(held: _Held, key: Key, obj: Object) -> None:
    for uid in _owners(obj):
        held.owned[uid][key] = None
    for mark in _marks(key, obj):
        held.labelled[mark][key] = None


def _unindex(held: _Held, key: Key, obj: Object) -> None:
    for uid in _owners(obj):
        held.owned[uid].pop(key, None)
        if not held.owned[uid]:
            del held.owned[uid]
    for mark in _marks(key, obj):
        held.labelled[mark].pop(key, None)
        if not held.labelled[mark]:
            del held.labelled[mark]
