"""OpenAPI v2 in protobuf, as kubectl reads it: the same document as the JSON form, in gnostic's messages.

kubectl validates what is inside a `kind: List` itself, by these definitions, before it sends the first item; without
them half of a list with one bad item would be created. The fields and their numbers are those of gnostic's
`OpenAPIv2.proto`. A map of names is a list of name and value there, an extension (`x-…`), a default and an enum are
YAML text, for which JSON serves. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

STRING, STRINGS, FLAG, ANY, ANYS = "string", "strings", "flag", "any", "anys"

# Message → JSON key → field number and type: one of the above, the name of a message, "[]" before one that repeats.
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
        "pattern": (13, STRING), "uniqueItems": (16, FLAG), "required": (19, STRINGS), "enum": (20, ANYS),
        "additionalProperties": (21, "Either"), "type": (22, "Type"), "items": (23, "Items"),
        "allOf": (24, "[]Schema"), "properties": (25, "Named"),
    },
}  # fmt: skip
_EXTENSIONS = {"Operation": 13, "Schema": 31}


def document(json: Mapping[str, Any]) -> bytes:
    """An OpenAPI v2 document as gnostic's `Document`."""
    return _message("Document", json)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _yaml(value: Any) -> bytes:
    """gnostic's `Any`: the value as text, which is YAML if it is JSON."""
    return _field(2, msgspec.json.encode(value))


def _named(name: str, value: bytes) -> bytes:
    return _field(1, name.encode()) + _field(2, value)


def _message(kind: str, json: Any) -> bytes:
    """One message. What the table does not know is left out, but for extensions where the message has them."""
    if kind == "Named":
        return b"".join(_field(1, _named(name, _message("Schema", value))) for name, value in json.items())
    if kind == "Paths":
        return b"".join(_field(2, _named(name, _message("Path", value))) for name, value in json.items())
    if kind == "Responses":
        answers = ((code, _field(1, _message("Response", value))) for code, value in json.items())
        return b"".join(_field(1, _named(code, value)) for code, value in answers)
    if kind == "Parameter":
        place, sub = (4, "InPath") if json["in"] == "path" else (3, "Query")
        return _field(1, _field(2, _field(place, _message(sub, json))))
    if kind == "Either":  # a schema, or yes or no
        return _varint(2 << 3) + _varint(json) if isinstance(json, bool) else _field(1, _message("Schema", json))
    if kind == "Type":
        return _field(1, json.encode())
    if kind == "Items":
        return _field(1, _message("Schema", json))
    found = []
    for key, value in json.items():
        if key in _MESSAGES[kind]:
            found.append(_written(*_MESSAGES[kind][key], value))
        elif key.startswith("x-") and kind in _EXTENSIONS:
            found.append(_field(_EXTENSIONS[kind], _named(key, _yaml(value))))
    return b"".join(found)


def _written(number: int, kind: str, value: Any) -> bytes:
    if kind == STRING:
        return _field(number, value.encode())
    if kind == STRINGS:
        return b"".join(_field(number, one.encode()) for one in value)
    if kind == FLAG:
        return _varint(number << 3) + _varint(bool(value))
    if kind == ANY:
        return _field(number, _yaml(value))
    if kind == ANYS:
        return b"".join(_field(number, _yaml(one)) for one in value)
    if kind.startswith("[]"):
        return b"".join(_field(number, _message(kind[2:], one)) for one in value)
    return _field(number, _message(kind, value))
