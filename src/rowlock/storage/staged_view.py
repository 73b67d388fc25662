"""The objects as the next write will find them: what is committed, with what is staged on top of it.

Writes are checked against this view. Many writes may be on their way to disk together, and the second of two pods must not
pass a quota because the first is not durable yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.controllers.view.object_table import has_ended
from rowlock.controllers.view.state import State, StoredChange
from rowlock.kinds import Kind
from rowlock.objects import Key, Object


class StagedView:
    """A `View` for checking writes; controllers and clients see the committed `State` only."""

    def __init__(self, committed: State) -> None:
        self._committed = committed
        self._pending: dict[Kind, dict[Key, StoredChange]] = {}

    @property
    def revision(self) -> int:
        return self._committed.revision

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        pending = self._pending.get(kind)
        change = pending.get(Key(namespace, name)) if pending else None
        if change is not None:
            return None if change.type == "Deleted" else change.object
        return self._committed.get(kind, namespace, name)

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        if Key(namespace, name) not in self._pending.get(kind, ()):
            return self._committed.metadata(kind, namespace, name)
        found = self.get(kind, namespace, name)
        return None if found is None else objects.meta(found)

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        if Key(namespace, name) not in self._pending.get(kind, ()):
            return self._committed.has_ended(kind, namespace, name)
        found = self.get(kind, namespace, name)
        return found is not None and has_ended(kind, found)

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        pending = self._pending.get(kind)
        committed = self._committed.all(kind, namespace)
        if not pending:
            return committed
        merged = {objects.key(obj): obj for obj in committed}
        for key, change in pending.items():
            if change.type == "Deleted":
                merged.pop(key, None)
            elif namespace in ("", key.namespace):
                merged[key] = change.object
        return [merged[key] for key in sorted(merged)]

    def keys(self, kind: Kind, namespace: str = "") -> Iterable[Key]:
        pending = {
            key: change for key, change in self._pending.get(kind, {}).items() if namespace in ("", key.namespace)
        }
        if not pending:
            return self._committed.keys(kind, namespace)
        added = {key for key, change in pending.items() if change.type != "Deleted"}
        return sorted(added.union(self._committed.keys(kind, namespace)) - (pending.keys() - added))

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        def is_owned(obj: Object) -> bool:
            return any(r.get("uid") == uid for r in objects.meta(obj).get("ownerReferences") or ())

        if not self._pending.get(kind):
            return self._committed.by_owner(kind, uid)
        return [obj for obj in self.all(kind) if is_owned(obj)]

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        if not self._pending.get(kind):
            return self._committed.by_label(kind, namespace, label, value)
        return [obj for obj in self.all(kind, namespace) if objects.labels(obj).get(label) == value]

    # ------------------------------------------------------------ staging

    def stage(self, change: StoredChange) -> None:
        """Show this change in the view before it is committed, in place of an earlier one of the same object."""
        kind, key = change.kind_and_key
        self._pending.setdefault(kind, {})[key] = change

    def unstage(self, change: StoredChange) -> None:
        """Remove a committed change from the view; a later staged change of the same object stays."""
        kind, key = change.kind_and_key
        if self._pending.get(kind, {}).get(key) is change:
            del self._pending[kind][key]

    def clear(self) -> None:
        """Forget every staged change: the commit failed, and the committed state is what holds."""
        self._pending.clear()
