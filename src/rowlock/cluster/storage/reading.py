"""How the store answers reads: which objects a selector means, pages of a list, a change as one watcher sees it. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from rowlock import kinds, objects
from rowlock.api import Change
from rowlock.cluster.storage.state import State, Stored
from rowlock.errors import BadRequest
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)


ANY = FieldSelector()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asks for: one kind, in one namespace or ("") in all, with these labels and fields."""

    kind: Kind
    namespace: str = ""
    labels: Selector = EVERYTHING
    fields: FieldSelector = ANY

    @property
    def selective(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: Object) -> bool:
        if self.labels and not self.labels.matches(objects.labels(obj)):
            return False
        return not self.fields or self.fields.matches(lambda path: field_of(self.kind, obj, path))

    def seen(self, change: Stored) -> Change | None:
        """The change as this reader sees it: what stops matching is Deleted, what begins to is Added."""
        if self.namespace and change.key.namespace != self.namespace:
            return None
        if not self.selective:
            return change
        now = self.matches(change.object)
        if change.type != "Modified":
            return change if now else None
        before = change.old is not None and self.matches(change.old)
        if now:
            return change if before else replace(change, type="Added")
        if not before or change.old is None:
            return None
        gone = objects.changed(change.old, "metadata.resourceVersion", str(change.revision))
        return replace(change, type="Deleted", object=gone, encoded=b"")


def field_of(kind: Kind, obj: Object, path: str) -> str:
    """A field as text for a field selector; "" when absent."""
    value: Any = objects.dig(obj, path)
    if kind is kinds.EVENT and path == "source":
        value = objects.dig(obj, "source.component") or obj.get("reportingComponent")
    if isinstance(value, bool) or path in _SAID_FALSE:
        return "true" if value else "false"
    return "" if value is None else str(value)


_SAID_FALSE = frozenset({"spec.unschedulable", "spec.hostNetwork"})
"""Fields that are "false" to a selector where nobody wrote them."""


# ---------------------------------------------------------------- pages


class _Place(msgspec.Struct, array_like=True):
    """Where a list goes on: at which revision, after which key."""

    revision: int
    namespace: str
    name: str


def token(revision: int, after: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Place(revision, *after))).decode().rstrip("=")


def place(text: str) -> tuple[int, Key]:
    """The inverse of `token`. Raises BadRequest."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = msgspec.json.decode(raw, type=_Place)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        why = "it must be the one that the previous page returned"
        raise BadRequest(f"invalid continue token: continue key is not valid: {why}") from error
    return found.revision, Key(found.namespace, found.name)


def at(state: State, wanted: Wanted, since: Sequence[Stored], after: Key) -> Iterator[tuple[Key, Object]]:
    """The objects beyond a key as they were before the changes `since`: the newest state with those taken back."""
    now = state.items(wanted.kind, wanted.namespace, after)
    before: dict[Key, Object | None] = {}
    for change in reversed(since):
        if change.key > after and wanted.namespace in ("", change.key.namespace):
            before[change.key] = change.old
    if not before:
        return now
    then = dict(now) | before
    return iter([(key, obj) for key in sorted(then) if (obj := then[key]) is not None])


def page(wanted: Wanted, found: Iterator[tuple[Key, Object]], limit: int) -> list[tuple[Key, Object]]:
    """What matches, and no more than the limit."""
    matching = ((k, o) for k, o in found if not wanted.selective or wanted.matches(o))
    return list(islice(matching, limit)) if limit else list(matching)
