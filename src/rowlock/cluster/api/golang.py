"""Go's sentences about JSON: what a real API server says of a body that its decoder cannot read. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from rowlock.cluster.api.go_types import TEXTS

SHOWN = 30
"""Bytes of an unreadable body that are repeated in its refusal."""
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_VERSION_AND_KIND = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_END = "unexpected end of JSON input"


def json_error(body: bytes) -> str:
    """What is wrong with a text that should be JSON; "" when nothing is."""
    text = body.decode("utf-8", "replace")
    try:
        json.loads(text, parse_constant=_constant)
    except json.JSONDecodeError as error:
        return _END if error.msg.startswith("Unterminated string") else _at(text, error.pos, error.msg)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "exceeded max depth"
    return ""


def _constant(name: str) -> Any:
    raise ValueError(f"invalid character {_quoted(name[0])} looking for beginning of value")


def _at(text: str, place: int, said: str) -> str:
    """The sentence for the character at `place`; `said` is what Python calls it."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    if place >= len(text):
        return _END
    if said.startswith("Expecting value") and text[place] in _LITERALS:
        return _literal(text[place:], _LITERALS[text[place]])
    where = {
        "Expecting value": "looking for beginning of value",
        "Expecting property name": "looking for beginning of object key string",
        "Expecting ':' delimiter": "after object key",
        "Extra data": "after top-level value",
        "Invalid control character": "in string literal",
        "Invalid \\escape": "in string escape code",
        "Expecting ',' delimiter": "after object key:value pair"
        if _inside(text[:place]) == "{"
        else "after array element",
    }
    found = next((words for start, words in where.items() if said.startswith(start)), "looking for beginning of value")
    return f"invalid character {_quoted(text[place])} {found}"


def _literal(text: str, word: str) -> str:
    for have, wanted in zip(text, word, strict=False):
        if have != wanted:
            return f"invalid character {_quoted(have)} in literal {word} (expecting {_quoted(wanted)})"
    return _END


def _inside(text: str) -> str:
    """The bracket that is open at the end of a text without mistakes."""
    stack, quoted, escaped = [""], False, False
    for char in text:
        if quoted:
            quoted, escaped = char != '"' or escaped, char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char in "{[":
            stack.append(char)
        elif char in "}]":
            stack.pop()
    return stack[-1]


def _quoted(char: str) -> str:
    if char == "'":
        return "'\\''"
    return "'\"'" if char == '"' else f"'{json.dumps(char)[1:-1]}'"


def unmarshal(value: Any, into: str) -> str:
    """A value of the wrong type."""
    names = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {names.get(type(value), 'null')} into Go {into}"


_UNTYPED = "couldn't get version/kind; json parse error: "
TEXT_TYPES = frozenset({"string", *TEXTS.values()})
_UNMARSHAL = re.compile(r"json: cannot unmarshal (\w+)(?: \S+)? into Go struct field \S+ of type (.+)")


def converted(value: Any, wanted: str, *, text: bool = False) -> str:
    """What a real server says of a value of the wrong type in memory, where its decoder says it of JSON: after a
    strategic merge, or an apply. `text`: the type is one of texts."""
    source = {bool: "bool", str: "string", int: "int64", float: "float64", list: "slice", dict: "map"}[type(value)]
    text, number = text or wanted in TEXT_TYPES, wanted.startswith(("int", "float"))
    if (text and source == "int64") or (number and source == "float64"):
        return f"cannot convert {source} to {wanted}"
    if text or number or wanted == "bool":
        return f"unrecognized type: {'string' if text else wanted}"
    if wanted.startswith("map[") or wanted == "v1.ResourceList":
        return f"cannot restore map from {source}"
    return f"cannot restore {'slice from' if wanted.startswith('[]') else 'struct from:'} {source}"


def unconverted(patch: Any, why: str) -> str:
    """What a strategic merge says where the decoder says `why`: its values are in memory already, not in JSON."""
    found = _UNMARSHAL.fullmatch(why.removeprefix(_UNTYPED))
    if found is None:
        return f"error decoding from json: {why}" if why.startswith("illegal base64") else why
    number = "float64" if _has_float(patch) else "int64"
    source = {"number": number, "array": "slice", "object": "map"}.get(found[1], found[1])
    wanted, text = found[2], found[2] in TEXT_TYPES
    if (text and source == "int64") or (wanted.startswith("int") and source == "float64"):
        return f"cannot convert {source} to {wanted}"
    wanted = "string" if text else wanted
    if wanted in ("string", "bool") or wanted.startswith("int"):
        return f"unrecognized type: {wanted}"
    if wanted.startswith("map["):
        return f"cannot restore map from {source}"
    return f"cannot restore {'slice from' if wanted.startswith('[]') else 'struct from:'} {source}"


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_float(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def printed(value: Any) -> str:
    """A value as Go's `%+v` shows it; what a patch takes away is not there any more."""
    if isinstance(value, dict):
        kept = sorted((key, inner) for key, inner in value.items() if inner is not None)
        return f"map[{' '.join(f'{key}:{printed(inner)}' for key, inner in kept)}]"
    if isinstance(value, list):
        return f"[{' '.join(map(printed, value))}]"
    if isinstance(value, bool) or value is None:
        return "<nil>" if value is None else str(value).lower()
    return str(value)


def unrecognised(kind: str, body: bytes, why: str) -> str:
    """A body that is no object of any kind."""
    return f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({_summary(body)})"


def no_kind(kind: str, body: bytes) -> str:
    """An object that does not say what it is."""
    text = body.decode("utf-8", "replace")
    missing = f"Object 'Kind' is missing in '{text}'"
    return f"the object provided is unrecognized (must be of type {kind}): {missing} ({_summary(body)})"


def no_object(kind: str, body: bytes, value: Any) -> str:
    """JSON, but a list, a number or a text."""
    return unrecognised(kind, body, unmarshal(value, f"value of type {_VERSION_AND_KIND}"))


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    plain = body[:1] == b"{"
    shown = body[:SHOWN].decode("utf-8", "replace") if plain else body[:SHOWN].hex()
    return shown + (" ..." if len(body) > SHOWN else "")
