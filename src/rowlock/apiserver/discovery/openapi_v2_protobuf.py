"""OpenAPI v2 in protobuf, as kubectl reads it: the same document as the JSON form, in gnostic's messages.

kubectl validates the items of a `kind: List` itself, with these definitions, before it sends the first one; without
them half of a list with one bad item would be created. The fields and their numbers are those of gnostic's
`OpenAPIv2.proto`. There a map is a list of names and values; an extension (`x-…`), a default and an enum are
YAML text, written here as JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

STRING, FLAG, ANY = "string", "flag", "any"

# Message → JSON key → field number and type: one of the above, the name of a message, "[]" before what repeats.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Document": {"swagger": (1, STRING), "info": (2, "Info"), "paths": (8, "Paths"), "definitions": (9, "Named")},
    "Info": {"title": (1, STRING), "version": (2, STRING)},
    "Path": {
        "get": (2, "Operation"), "put": (3, "Operation"), "post": (4, "Operation"), "delete": (5, "Operation"),
        "patch": (8, "Operation"), "parameters": (9, "[]Parameter"),
    },
    "Operation": {"operationId": (5, STRING), "parameters": (8, "[]Parameter"), "responses": (9, "Responses")},
    "Query": {"required": (1, FLAG), "in": (2, STRING), "name": (4, STRING), "type": (6, STRING), "uniqueItems": (20, FLAG)},
    "InPath": {"required": (1, FLAG), "in": (2, STRING), "name": (4, STRING), "type": (5, STRING), "uniqueItems": (20, FLAG)},
    "Response": {"description": (1, STRING), "schema": (2, "Either")},
    "Schema": {
        "$ref": (1, STRING), "format": (2, STRING), "description": (4, STRING), "default": (5, ANY),
        "pattern": (13, STRING), "uniqueItems": (16, FLAG), "required": (19, "[]string"), "enum": (20, "[]any"),
        "additionalProperties": (21, "Either"), "type": (22, "Type"), "items": (23, "Items"),
        "allOf": (24, "[]Schema"), "properties": (25, "Named"),
    },
}  # fmt: skip
_EXTENSIONS = {"Operation": 13, "Schema": 31}
_MAPS = {"Named": (1, "Schema"), "Paths": (2, "Path"), "Responses": (1, "ResponseValue")}
_WRAPPERS = {"Items": (1, "Schema"), "Type": (1, STRING), "ResponseValue": (1, "Response"), "Either": (1, "Schema")}
"""Messages that are maps in JSON, or have no counterpart: the field number and type of their content."""


def encode_document(json: Mapping[str, Any]) -> bytes:
    """An OpenAPI v2 document as gnostic's `Document`."""
    return _encode_message("Document", json)


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _length_delimited(number: int, data: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(data)) + data


def _encode_any(value: Any) -> bytes:
    """gnostic's `Any`: the value as YAML text; JSON is YAML."""
    return _length_delimited(2, msgspec.json.encode(value))


def _encode_named(name: str, value: bytes) -> bytes:
    return _length_delimited(1, name.encode()) + _length_delimited(2, value)


def _encode_message(kind: str, json: Any) -> bytes:
    """Encode one message. Fields that are not in the table are skipped, except extensions if the message has them."""
    if kind in _MAPS:
        number, inner = _MAPS[kind]
        named = (_encode_named(name, _encode_message(inner, value)) for name, value in json.items())
        return b"".join(_length_delimited(number, entry) for entry in named)
    if kind == "Parameter":
        place = _encode_field(4, "InPath", json) if json["in"] == "path" else _encode_field(3, "Query", json)
        return _length_delimited(1, _length_delimited(2, place))
    if kind == "Either" and isinstance(json, bool):  # a schema or a boolean
        return _encode_field(2, FLAG, json)
    if kind in _WRAPPERS:
        return _encode_field(*_WRAPPERS[kind], json)
    parts = []
    for key, value in json.items():
        if key in _MESSAGES[kind]:
            parts.append(_encode_field(*_MESSAGES[kind][key], value))
        elif key.startswith("x-") and kind in _EXTENSIONS:
            parts.append(_length_delimited(_EXTENSIONS[kind], _encode_named(key, _encode_any(value))))
    return b"".join(parts)


def _encode_field(number: int, kind: str, value: Any) -> bytes:
    if kind.startswith("[]"):
        return b"".join(_encode_field(number, kind[2:], one) for one in value)
    if kind == FLAG:
        return _encode_varint(number << 3) + _encode_varint(bool(value))
    if kind == STRING:
        return _length_delimited(number, value.encode())
    return _length_delimited(number, _encode_any(value) if kind == ANY else _encode_message(kind, value))
