"""The objects of one kind in one namespace, as JSON, and the decoded ones among them.

A decoded object takes five times the memory of its JSON. Finished pods and jobs, events, services and what else jobs leave behind are
read seldom, so only the latest of them stay decoded (`DecodedObjects`); the others are decoded when they are read. Everything else
stays decoded once it was read, and so does what an unfinished workload owns: its controller reads all of that at each turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, overload

import msgspec

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Object

DECODED_LIMIT = 512
"""Objects that may be dropped and stay decoded all the same, of all kinds together."""
ENDING_KINDS = frozenset({kinds.POD, *kinds.WORKLOADS})
_LEFT_BEHIND = frozenset({kinds.EVENT, kinds.SERVICE, kinds.SECRET, kinds.CONFIG_MAP, kinds.POD_GROUP})
_ENDS = frozenset({"Succeeded", "Failed", "Complete", "Completed"})
"""Phases and conditions of pods and jobs that have ended."""
_NO_UIDS = frozenset[str]()

decode = msgspec.json.Decoder(Object).decode
encode = msgspec.json.Encoder().encode


class _IndexedFields(msgspec.Struct):
    name: Any = None
    namespace: Any = None
    uid: Any = None
    resourceVersion: Any = None
    creationTimestamp: Any = None
    ownerReferences: Any = None
    labels: Any = None
    annotations: Any = None
    finalizers: Any = None
    deletionTimestamp: Any = None


class _IndexedObject(msgspec.Struct):
    metadata: _IndexedFields


class _EndFields(msgspec.Struct):
    phase: Any = None
    conditions: Any = None


class _EndedObject(msgspec.Struct):
    metadata: _IndexedFields
    status: _EndFields | None = None


_decode_indexed = msgspec.json.Decoder(_IndexedObject).decode
_decode_ended = msgspec.json.Decoder(_EndedObject).decode


def is_seldom_read(kind: Kind, obj: Object) -> bool:
    """Whether an object need not stay decoded: it has ended, or it is of a kind that jobs leave behind."""
    return kind in _LEFT_BEHIND or has_ended(kind, obj)


def has_ended(kind: Kind, obj: Object) -> bool:
    """Whether this is a pod or a job that has ended."""
    if kind not in ENDING_KINDS:
        return False
    status = obj.get("status")
    if not isinstance(status, dict):
        return False
    if kind is kinds.POD:
        return str(status.get("phase")) in _ENDS
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(one, dict) and one.get("status") == "True" and str(one.get("type")) in _ENDS for one in conditions
    )


def fields_of_seldom_read(kind: Kind, encoded: bytes) -> dict[str, Any] | None:
    """The `indexed_fields` of an encoded object that need not stay decoded, without decoding the rest; None for every other object."""
    if kind in _LEFT_BEHIND:
        return indexed_fields(encoded)
    if kind not in ENDING_KINDS:
        return None
    try:
        found = _decode_ended(encoded)
    except msgspec.ValidationError:  # a status that is no object: definitions of kinds may allow it
        return None
    status = msgspec.structs.asdict(found.status) if found.status else {}
    return msgspec.structs.asdict(found.metadata) if is_seldom_read(kind, {"status": status}) else None


def owner_uids(meta: dict[str, Any]) -> Set[str]:
    """The uids of an object's owners. What a real cluster sends need not be well-formed."""
    owners = meta.get("ownerReferences")
    return {str(objects.dig(owner, "uid")) for owner in owners} if isinstance(owners, list) else _NO_UIDS


@dataclass(slots=True, eq=False)
class ObjectTable:
    """All objects of one kind in one namespace. One that was put without its JSON is encoded when it is dropped."""

    kind: Kind
    names: list[str] = field(default_factory=list)
    """Sorted."""
    decoded: dict[str, Object] = field(default_factory=dict)
    encoded: dict[str, bytes] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Names of the pods or jobs that have ended."""

    def indexed_fields(self, name: str) -> dict[str, Any]:
        """The `_IndexedFields` of an object's metadata, or all of it when it is decoded; {} when there is no such object."""
        obj = self.decoded.get(name)
        if obj is not None:
            return objects.meta(obj)
        text = self.encoded.get(name)
        return indexed_fields(text) if text is not None else {}

    def entries(self) -> Sequence[Object | bytes]:
        """Each object in the order of names, as JSON if it is not decoded."""
        if len(self.decoded) == len(self.names):
            return [self.decoded[name] for name in self.names]
        decoded, encoded = self.decoded.get, self.encoded
        return [encoded[name] if (obj := decoded(name)) is None else obj for name in self.names]


def indexed_fields(encoded: bytes) -> dict[str, Any]:
    """The `_IndexedFields` of an encoded object's metadata."""
    return msgspec.structs.asdict(_decode_indexed(encoded).metadata)


def decode_metadata(encoded: bytes) -> Object:
    """An object with nothing but its `indexed_fields`."""
    return {"metadata": indexed_fields(encoded)}


class DecodedObjects:
    """The seldom read objects that are decoded, oldest first. Beyond the limit the oldest are dropped from their tables, unless an
    unfinished workload owns them."""

    def __init__(self, limit: int = DECODED_LIMIT) -> None:
        self._limit = limit
        self._entries: OrderedDict[tuple[ObjectTable, str], None] = OrderedDict()
        self._unfinished: set[str] = set()
        """Uids of the workloads that have not ended."""

    def note_workload(self, uid: str, is_unfinished: bool) -> bool:
        """Whether what this workload owns need no longer stay decoded: it was unfinished, and has ended or is deleted."""
        if is_unfinished:
            self._unfinished.add(uid)
            return False
        was_unfinished = uid in self._unfinished
        self._unfinished.discard(uid)
        return was_unfinished

    def read(self, table: ObjectTable, name: str) -> Object | None:
        """The object of this name, decoded now if it was not; None when there is none."""
        obj = table.decoded.get(name)
        if obj is None and (text := table.encoded.get(name)) is not None:
            obj = decode(text)
            self.put(table, name, obj)
        return obj

    def put(self, table: ObjectTable, name: str, obj: Object) -> None:
        """Keep `obj` in its table, decoded: for ever, or until newer ones have taken its place."""
        table.decoded[name] = obj
        kind, entry = table.kind, (table, name)
        is_dropped = kind in _LEFT_BEHIND
        if kind in ENDING_KINDS:
            is_dropped = has_ended(kind, obj)
            (table.ended.add if is_dropped else table.ended.discard)(name)
        elif not is_dropped:
            return
        if not is_dropped or not self._unfinished.isdisjoint(owner_uids(objects.meta(obj))):
            self._entries.pop(entry, None)
            return
        self._entries[entry] = None
        self._entries.move_to_end(entry)
        if len(self._entries) > self._limit:
            (oldest, oldest_name), _ = self._entries.popitem(last=False)
            dropped = oldest.decoded.pop(oldest_name, None)
            if dropped is not None and oldest_name not in oldest.encoded:
                oldest.encoded[oldest_name] = encode(dropped)

    def drop(self, table: ObjectTable, name: str) -> None:
        """The object of this name was removed."""
        table.decoded.pop(name, None)
        table.ended.discard(name)
        self._entries.pop((table, name), None)


class ObjectList(Sequence[Object]):
    """Objects of which some are JSON; each is decoded when it is read, and not kept."""

    def __init__(self, entries: Sequence[Object | bytes]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Object]:
        return (decode(one) if isinstance(one, bytes) else one for one in self._entries)

    @overload
    def __getitem__(self, index: int) -> Object: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Object]: ...

    def __getitem__(self, index: int | slice) -> Object | Sequence[Object]:
        if isinstance(index, slice):
            return ObjectList(self._entries[index])
        one = self._entries[index]
        return decode(one) if isinstance(one, bytes) else one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list
