"""How the store answers reads: matching selectors, pages of a list, a change as one watcher sees it. Pure."""

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
from rowlock.controllers.view.state import State, StoredChange
from rowlock.errors import BadRequest
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

EXPIRED_TOKEN_MESSAGE = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)


ANY_FIELDS = FieldSelector()


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a read selects: of one kind, in one namespace or ("") in all, with these labels and fields."""

    kind: Kind
    namespace: str = ""
    labels: Selector = EVERYTHING
    fields: FieldSelector = ANY_FIELDS

    @property
    def is_selective(self) -> bool:
        """Whether it selects by labels or fields; otherwise every object of the namespace matches."""
        return bool(self.labels or self.fields)

    def matches(self, obj: Object) -> bool:
        """Whether labels and fields select this object; the caller compares its kind and namespace."""
        if self.labels and not self.labels.matches(objects.labels(obj)):
            return False
        return not self.fields or self.fields.matches(lambda path: field_of(self.kind, obj, path))

    def visible_change(self, change: StoredChange) -> Change | None:
        """The change as this reader sees it, or None: an object that stops matching is Deleted, one that starts to is Added."""
        if self.namespace and change.key.namespace != self.namespace:
            return None
        if not self.is_selective:
            return change
        matches_now = self.matches(change.object)
        if change.type != "Modified":
            return change if matches_now else None
        matched_before = change.old is not None and self.matches(change.old)
        if matches_now:
            return change if matched_before else replace(change, type="Added")
        if not matched_before or change.old is None:
            return None
        last_object = objects.with_field(change.old, "metadata.resourceVersion", str(change.revision))
        return replace(change, type="Deleted", object=last_object, encoded=b"")


def field_of(kind: Kind, obj: Object, path: str) -> str:
    """A field as text for a field selector; "" when absent."""
    value: Any = objects.dig(obj, path)
    if kind is kinds.EVENT and path == "source":
        value = objects.dig(obj, "source.component") or obj.get("reportingComponent")
    if isinstance(value, bool) or path in _FALSE_WHEN_ABSENT:
        return "true" if value else "false"
    return "" if value is None else str(value)


_FALSE_WHEN_ABSENT = frozenset({"spec.unschedulable", "spec.hostNetwork"})
"""Fields that a selector sees as "false" when they are absent."""


# ---------------------------------------------------------------- pages


class _ContinueToken(msgspec.Struct, array_like=True):
    """Where a list continues: at which revision, after which key."""

    revision: int
    namespace: str
    name: str


def encode_token(revision: int, after: Key) -> str:
    """The `continue` token of a list: URL-safe base64 of the list's revision and its last key, as upstream's `EncodeContinue`."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_ContinueToken(revision, *after))).decode().rstrip("=")


def decode_token(text: str) -> tuple[int, Key]:
    """The inverse of `encode_token`. Raises BadRequest."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        position = msgspec.json.decode(raw, type=_ContinueToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        why = "it must be the one that the previous page returned"
        raise BadRequest(f"invalid continue token: continue key is not valid: {why}") from error
    return position.revision, Key(position.namespace, position.name)


def objects_at_revision(
    state: State, selection: Selection, since: Sequence[StoredChange], after: Key
) -> Iterator[tuple[Key, Object]]:
    """The objects after a key as they were before the changes `since`: the newest state with these changes undone."""
    newest = state.items(selection.kind, selection.namespace, after)
    previous: dict[Key, Object | None] = {}
    for change in reversed(since):
        if change.key > after and selection.namespace in ("", change.key.namespace):
            previous[change.key] = change.old
    if not previous:
        return newest
    restored = dict(newest) | previous
    return iter([(key, obj) for key in sorted(restored) if (obj := restored[key]) is not None])


def take_page(selection: Selection, items: Iterator[tuple[Key, Object]], limit: int) -> list[tuple[Key, Object]]:
    """The matching items, at most `limit` of them (0 = all)."""
    matching = ((k, o) for k, o in items if not selection.is_selective or selection.matches(o))
    return list(islice(matching, limit)) if limit else list(matching)
