"""Objects of watches out of their JSON, small: what is equal is there once, as in a string pool. Pure but for its memory.

Ten thousand pods of a thousand jobs say the same thing in nearly every field, and two caches of one process (the REST API's, the
scheduler's) see the same pods. So a part of an object (a toleration, a list of volumes, a phase) that was decoded lately is not decoded
again, but shared; and an object that some cache still holds is given to the next one as it is, known by its uid and
resourceVersion: a list of everything after a broken watch then costs a look at each. An object of an `Api` must not be changed: with this
decoder, a change of one object changes others as well.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from rowlock.objects import Object

MAX_POOL_BYTES = 2**20
"""JSON of parts that one generation of the pool knows: what is not seen again within so much text is forgotten."""
_MAX_PART_BYTES = 4096
"""Larger parts are not looked for as a whole."""
_MAX_DEPTH = 8
"""Deeper parts are decoded as they come: looking into parts again and again costs depth times size."""
_PART_DEPTH = 2
"""What lies above (the object; its metadata, spec and status) is never the same twice."""
_NEW_OBJECTS = 2048
"""Objects that are remembered until it is looked whether anybody else still holds those of before."""
_OWN_REFERENCES = 2
"""What `sys.getrefcount` says of an object that only the decoder knows: that of `_objects`, and its own argument."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    resourceVersion: str = ""


class _Head(msgspec.Struct):
    metadata: _Metadata


_head = msgspec.json.Decoder(_Head)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


class ObjectDecoder:
    """One for all watches of a process, or of a test."""

    def __init__(self, max_pool_bytes: int = MAX_POOL_BYTES) -> None:
        self._max_pool_bytes = max_pool_bytes
        self._objects: dict[tuple[str, str], Object] = {}
        """By uid and resourceVersion. Dicts cannot be referred to weakly, so those that nobody else holds are swept out."""
        self._sweep_at = _NEW_OBJECTS
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._young_bytes = 0

    def decode(self, text: msgspec.Raw | bytes) -> Object:
        """The object of this JSON, without managedFields. Raises ValueError for what is no object with metadata."""
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
