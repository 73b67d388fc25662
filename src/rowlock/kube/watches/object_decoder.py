"""Decodes objects of watches with little memory: equal parts are shared, as in a string pool. Pure but for the pool.

Ten thousand pods of a thousand jobs are equal in nearly every field, and two caches of one process (the REST API's, the scheduler's) see
the same pods. So a part of an object (a toleration, a list of volumes, a phase) that was decoded recently is not decoded again, but shared.
An object that some cache still holds, by uid and resourceVersion, is returned as it is, so that a full list after a broken watch is cheap.
An object of an `Api` must never be modified: with this decoder, that would change other objects as well.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from rowlock.objects import Object

MAX_POOL_BYTES = 2**20
"""Bytes of JSON in one of the pool's two generations: a part that is not seen again within so much text is dropped."""
_MAX_PART_BYTES = 4096
"""Maximum size of a part in the pool; of larger ones only their parts are shared."""
_MAX_DEPTH = 8
"""Parts nested deeper are decoded without the pool, since each level scans the text again."""
_PART_DEPTH = 2
"""Depth from which parts are shared: the object itself, its metadata, spec and status are never equal."""
_NEW_OBJECTS = 2048
"""New objects between two sweeps, which drop objects that no cache holds any more."""
_OWN_REFERENCES = 2
"""`sys.getrefcount` of an object that only the decoder holds: one in `_objects`, one as the function's argument."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    resourceVersion: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata


_head = msgspec.json.Decoder(_Head)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


class ObjectDecoder:
    """Shared by all watches of a process."""

    def __init__(self, max_pool_bytes: int = MAX_POOL_BYTES) -> None:
        self._max_pool_bytes = max_pool_bytes
        self._objects: dict[tuple[str, str], Object] = {}
        """(uid, resourceVersion) → object. Dicts have no weak references, so objects that no cache holds are swept."""
        self._sweep_at = _NEW_OBJECTS
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._young_bytes = 0

    def decode(self, text: msgspec.Raw | bytes) -> Object:
        """The object of this JSON, without managedFields. Raises ValueError if it is not an object with metadata."""
        metadata = _head.decode(text).metadata
        identity = metadata.uid, metadata.resourceVersion
        known = self._objects.get(identity)
        if known is not None:
            return known
        obj = {name: self._decode_field(name, part) for name, part in _fields.decode(text).items()}
        if all(identity):
            if len(self._objects) >= self._sweep_at:
                self._sweep()
            self._objects[identity] = obj
        return obj

    def _sweep(self) -> None:
        for identity in list(self._objects):
            if sys.getrefcount(self._objects[identity]) <= _OWN_REFERENCES:
                del self._objects[identity]
        self._sweep_at = len(self._objects) + _NEW_OBJECTS

    def _decode_field(self, name: str, text: msgspec.Raw) -> Any:
        if name != "metadata":
            return self._decode_part(bytes(text), 1)
        return {
            field: self._decode_part(bytes(part), _PART_DEPTH)
            for field, part in _fields.decode(text).items()
            if field != "managedFields"
        }

    def _decode_part(self, text: bytes, depth: int) -> Any:
        if depth < _PART_DEPTH or len(text) > _MAX_PART_BYTES:
            return self._decode_new(text, depth)
        known = self._young.get(text)
        if known is None:
            known = self._old.get(text)
            if known is None:
                known = self._decode_new(text, depth)
            self._remember(text, known)
        return known

    def _decode_new(self, text: bytes, depth: int) -> Any:
        if depth < _MAX_DEPTH:
            if text.startswith(b"{"):
                return {name: self._decode_part(bytes(part), depth + 1) for name, part in _fields.decode(text).items()}
            if text.startswith(b"["):
                return [self._decode_part(bytes(part), depth + 1) for part in _items.decode(text)]
        return msgspec.json.decode(text)

    def _remember(self, text: bytes, part: Any) -> None:
        if self._young_bytes > self._max_pool_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, 0
        self._young[text] = part
        self._young_bytes += len(text)
