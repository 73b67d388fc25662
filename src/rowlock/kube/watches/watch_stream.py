"""A watch stream: bytes to lines, lines to `Change`s, and errors inside the stream to exceptions."""

from __future__ import annotations

from typing import Any

import msgspec

from rowlock.api import Change
from rowlock.errors import Internal, from_status
from rowlock.kinds import Kind
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.objects import Object, revision

INITIAL_END = "k8s.io/initial-events-end"
_TYPES = {"ADDED": "Added", "MODIFIED": "Modified", "DELETED": "Deleted", "BOOKMARK": "Bookmark"}


class LineSplitter:
    """Joins chunks and splits them into whole lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones; the rest is kept for the next chunk."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest = [others[-1]]
        return [line for line in lines if line]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_TOLD = frozenset({"ADDED", "MODIFIED", "DELETED"})
_event = msgspec.json.Decoder(_Event)


def parse_change(kind: Kind, line: bytes, decoder: ObjectDecoder | None = None) -> tuple[Change, bool]:
    """(the change in a line, whether it ends the initial state). Objects are decoded by `decoder` if given. Raises the ApiError of an ERROR
    event."""
    event = decode_event(line, decoder)
    obj: Object = event.get("object") or {}
    if event.get("type") == "ERROR":
        raise from_status(obj)
    name = _TYPES.get(str(event.get("type")))
    if name is None:
        raise Internal(
            f"a watch of {kind.resource} sent an event of type {event.get('type')!r}: not the Kubernetes API?"
        )
    if name == "Bookmark":
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        return Change("Bookmark", revision(obj), kind), annotations.get(INITIAL_END) == "true"
    return Change(name, revision(obj), kind, obj), False  # type: ignore[arg-type]  # looked up above


def decode_event(line: bytes, decoder: ObjectDecoder | None = None) -> dict[str, Any]:
    """One line of a watch as a JSON object. Raises Internal."""
    try:
        if decoder is not None and (told := _event.decode(line)).type in _TOLD:
            return {"type": told.type, "object": decoder.decode(told.object)}
        event = msgspec.json.decode(line)
    except ValueError as error:  # msgspec.DecodeError, or not UTF-8
        raise Internal(f"a watch sent a line that is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise Internal("a watch sent a line that is not an event")
    return event


class _PageMetadata(msgspec.Struct, rename={"token": "continue"}):
    resourceVersion: str = "0"
    token: str = ""


class RawPage(msgspec.Struct):
    """A page of a list whose items are not decoded."""

    metadata: _PageMetadata
    items: list[msgspec.Raw] | None = None


class _TypedItem(msgspec.Struct):
    kind: str = ""


_page = msgspec.json.Decoder(RawPage)
_typed_item = msgspec.json.Decoder(_TypedItem)


def split_page(kind: Kind, text: bytes) -> RawPage:
    """Parse the answer to a list without decoding its items. Raises Internal."""
    try:
        return _page.decode(text)
    except ValueError as error:
        raise Internal(f"the list of {kind.resource} is none: {error}") from error


def decode_item(kind: Kind, text: msgspec.Raw, decoder: ObjectDecoder | None = None) -> Object:
    """Decode one item of a list, and add its apiVersion and kind if they are missing, as in lists of pods. Raises Internal."""
    body = bytes(text).lstrip()
    try:
        if not _typed_item.decode(body).kind:
            typed = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name})
            body = typed[:-1] + b"," + body[1:]
        obj: Object = decoder.decode(body) if decoder is not None else msgspec.json.decode(body)
    except ValueError as error:
        raise Internal(f"an item in the list of {kind.resource} is no object: {error}") from error
    return obj


class InitialState:
    """Collects the initial state of a stream. Changes in between are applied, so that only the result is delivered."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Change] = {}

    def add(self, event: Change) -> None:
        """Add one event of the initial state."""
        meta = event.object["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if event.type == "Deleted":
            self._objects.pop(key, None)
        else:
            self._objects[key] = event

    def changes(self, bookmark: Change) -> list[Change]:
        """The initial state as additions in the order of keys, and the bookmark that ended it."""
        ordered = (self._objects[key] for key in sorted(self._objects))
        return [*(c if c.type == "Added" else Change("Added", c.revision, c.kind, c.object) for c in ordered), bookmark]
