"""Decodes Kubernetes' protobuf, in which kubectl's `create` commands and client-go controllers send built-in kinds.

A body is the magic `k8s\\0` and a `runtime.Unknown` around the object. Field numbers and value types
come from the table of types. Decoding only: answers are JSON, which every client accepts. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from rowlock import objects
from rowlock.apiserver.schema import structs, types
from rowlock.errors import BadRequest, UnsupportedMediaType

MAGIC = b"k8s\x00"
MAX_DEPTH = 64


def decode(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body. Raises BadRequest, UnsupportedMediaType."""
    if not body.startswith(MAGIC):
        raise BadRequest("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = {number: value for number, value in _read_fields(body[len(MAGIC) :])}
        head = {number: bytes(value).decode() for number, value in _read_fields(envelope.get(1, b""))}
        version, kind = head.get(1, ""), head.get(2, "")
        group, _, short = version.rpartition("/")
        name = types.type_name(group, short, kind)
        if not name or structs.FIELDS not in types.schema(name):
            raise UnsupportedMediaType(
                f"this server does not read {kind} in protobuf: send application/json"
                " (client-go: ContentType in rest.Config)"
            )
        obj = _decode_message(envelope.get(2, b""), name, 0)
    except (ValueError, IndexError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadRequest(f"the protobuf body cannot be read: {error}") from None
    return {"apiVersion": version, "kind": kind, **obj}


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _read_fields(data: Any) -> Iterator[tuple[int, Any]]:
    """The number and value (an int or bytes) of each field. Raises ValueError."""
    if not isinstance(data, bytes):
        raise ValueError("a message was expected")
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
        elif kind == 2:
            length, at = _read_varint(data, at)
            if at + length > len(data):
                raise ValueError("the message ends early")
            yield tag >> 3, data[at : at + length]
            at += length
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            yield tag >> 3, data[at : at + width]
            at += width
        else:
            raise ValueError(f"unknown wire type {kind}")


def _decode_message(data: Any, name: str, depth: int, node: types.Schema | None = None) -> Any:
    """One message as JSON. `node`: the schema with its fields, if the message is inline in another."""
    if depth > MAX_DEPTH:
        raise ValueError("the message is nested too deeply")
    if name in _WELL_KNOWN_TYPES:
        return _WELL_KNOWN_TYPES[name](dict(_read_fields(data)))
    node, field_names = node or types.schema(name), _numbers(name)
    out: dict[str, Any] = {}
    for number, value in _read_fields(data):
        field = field_names.get(number)
        if field is None:
            raise ValueError(f"{name} has no field number {number}")
        if field.startswith("+"):
            out.update(_decode_message(value, field[1:], depth + 1, node))
            continue
        child = node["properties"][field] if "properties" in node else {}
        _decode_field(out, field, value, child, depth)
    return out


@cache
def _numbers(name: str) -> dict[int, str]:
    return structs.numbers(types.schema(name))


def _decode_field(out: dict[str, Any], field: str, value: Any, node: types.Schema, depth: int) -> None:
    target = types.resolve_ref(node)
    if target.get("type") == "array":
        out.setdefault(field, []).append(_decode_value(value, target["items"], depth))
    elif target.get("type") == "object" and isinstance(target.get("additionalProperties"), dict):
        entry = dict(_read_fields(value))
        element = target["additionalProperties"]
        out.setdefault(field, {})[entry.get(1, b"").decode()] = _decode_value(entry.get(2, b""), element, depth)
    else:
        decoded = _decode_value(value, node, depth)
        if decoded is not None:
            out[field] = decoded


def _decode_value(value: Any, node: types.Schema, depth: int) -> Any:
    ref = node.get("$ref")
    if ref:
        return _decode_message(value, ref, depth + 1)
    kind = node.get("type")
    if kind == "array":  # a named list of strings inside a map
        return [v.decode() for _, v in _read_fields(value)]
    if kind == "integer":
        return value - 2**64 if value >= 2**63 else value
    if kind == "boolean":
        return bool(value)
    if kind == "string":
        return base64.b64encode(value).decode() if node.get("format") == "byte" else value.decode()
    raise ValueError("a field has a shape that is not read")


def _decode_time(fields: dict[int, Any]) -> str | None:
    seconds = fields.get(1, 0)
    seconds = seconds - 2**64 if seconds >= 2**63 else seconds
    return objects.timestamp(seconds) if seconds > 0 else None


def _decode_micro_time(fields: dict[int, Any]) -> str | None:
    seconds = fields.get(1, 0)
    if not 0 < seconds < 2**40:
        return None
    return objects.timestamp(seconds)[:-1] + f".{fields.get(2, 0) // 1000:06d}Z"


def _decode_int_or_string(fields: dict[int, Any]) -> int | str:
    if fields.get(1, 0):
        return str(fields.get(3, b"").decode())
    number = int(fields.get(2, 0))
    return number - 2**64 if number >= 2**63 else number


def _decode_quantity(fields: dict[int, Any]) -> str:
    return str(fields.get(1, b"0").decode())


def _decode_raw_json(fields: dict[int, Any]) -> Any:
    return msgspec.json.decode(fields.get(1, b"{}"))


_WELL_KNOWN_TYPES = {
    types.TIME: _decode_time,
    types.MICRO_TIME: _decode_micro_time,
    types.INT_OR_STRING: _decode_int_or_string,
    types.QUANTITY: _decode_quantity,
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": _decode_raw_json,
}
