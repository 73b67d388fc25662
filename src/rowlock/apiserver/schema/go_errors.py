"""Go's sentences about JSON: what a real API server says of a body that its decoder cannot read. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from rowlock.apiserver.schema import structs

MAX_SHOWN_BYTES = 30
"""Bytes of an unreadable body that are repeated in its refusal."""
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_VERSION_AND_KIND = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_UNEXPECTED_END = "unexpected end of JSON input"


def json_error(body: bytes) -> str:
    """What is wrong with a text that should be JSON; "" when nothing is."""
    text = body.decode("utf-8", "replace")
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return (
            _UNEXPECTED_END
            if error.msg.startswith("Unterminated string")
            else _syntax_error(text, error.pos, error.msg)
        )
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "exceeded max depth"
    return ""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"invalid character {_quote_char(name[0])} looking for beginning of value")


def _syntax_error(text: str, position: int, python_message: str) -> str:
    """The sentence for the character at `position`; `python_message` is what Python calls it."""
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    if position >= len(text):
        return _UNEXPECTED_END
    if python_message.startswith("Expecting value") and text[position] in _LITERALS:
        return _literal_error(text[position:], _LITERALS[text[position]])
    contexts = {
        "Expecting value": "looking for beginning of value",
        "Expecting property name": "looking for beginning of object key string",
        "Expecting ':' delimiter": "after object key",
        "Extra data": "after top-level value",
        "Invalid control character": "in string literal",
        "Invalid \\escape": "in string escape code",
        "Expecting ',' delimiter": "after object key:value pair"
        if _open_bracket(text[:position]) == "{"
        else "after array element",
    }
    context = next(
        (words for start, words in contexts.items() if python_message.startswith(start)),
        "looking for beginning of value",
    )
    return f"invalid character {_quote_char(text[position])} {context}"


def _literal_error(text: str, word: str) -> str:
    for char, expected in zip(text, word, strict=False):
        if char != expected:
            return f"invalid character {_quote_char(char)} in literal {word} (expecting {_quote_char(expected)})"
    return _UNEXPECTED_END


def _open_bracket(text: str) -> str:
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


def _quote_char(char: str) -> str:
    if char == "'":
        return "'\\''"
    return "'\"'" if char == '"' else f"'{json.dumps(char)[1:-1]}'"


def unmarshal_error(value: Any, go_type: str) -> str:
    """A value of the wrong type."""
    names = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {names.get(type(value), 'null')} into Go {go_type}"


_KIND_ERROR_PREFIX = "couldn't get version/kind; json parse error: "
_UNMARSHAL = re.compile(r"json: cannot unmarshal (\w+)(?: \S+)? into Go struct field \S+ of type (.+)")


def conversion_error(value: Any, go_type: str) -> str:
    """What a real server says of a value of the wrong type in memory, where its decoder says it of JSON: after a
    strategic merge, or an apply."""
    source = {bool: "bool", str: "string", int: "int64", float: "float64", list: "slice", dict: "map"}[type(value)]
    is_text, is_number = structs.is_text(go_type), go_type.startswith(("int", "float"))
    if (is_text and source == "int64") or (is_number and source == "float64"):
        return f"cannot convert {source} to {go_type}"
    if is_text or is_number or go_type == "bool":
        return f"unrecognized type: {'string' if is_text else go_type}"
    if go_type.startswith("map[") or go_type == "v1.ResourceList":
        return f"cannot restore map from {source}"
    return f"cannot restore {'slice from' if go_type.startswith('[]') else 'struct from:'} {source}"


def strategic_conversion_error(patch: Any, why: str) -> str:
    """What a strategic merge says where the decoder says `why`: its values are in memory already, not in JSON."""
    match = _UNMARSHAL.fullmatch(why.removeprefix(_KIND_ERROR_PREFIX))
    if match is None:
        return f"error decoding from json: {why}" if why.startswith("illegal base64") else why
    number_type = "float64" if _has_float(patch) else "int64"
    source = {"number": number_type, "array": "slice", "object": "map"}.get(match[1], match[1])
    go_type, is_text = match[2], structs.is_text(match[2])
    if (is_text and source == "int64") or (go_type.startswith("int") and source == "float64"):
        return f"cannot convert {source} to {go_type}"
    go_type = "string" if is_text else go_type
    if go_type in ("string", "bool") or go_type.startswith("int"):
        return f"unrecognized type: {go_type}"
    if go_type.startswith("map["):
        return f"cannot restore map from {source}"
    return f"cannot restore {'slice from' if go_type.startswith('[]') else 'struct from:'} {source}"


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_float(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def format_go_value(value: Any) -> str:
    """A value as Go's `%+v` shows it; what a patch takes away is not there any more."""
    if isinstance(value, dict):
        kept = sorted((key, inner) for key, inner in value.items() if inner is not None)
        return f"map[{' '.join(f'{key}:{format_go_value(inner)}' for key, inner in kept)}]"
    if isinstance(value, list):
        return f"[{' '.join(map(format_go_value, value))}]"
    if isinstance(value, bool) or value is None:
        return "<nil>" if value is None else str(value).lower()
    return str(value)


def unrecognised_object_error(kind: str, body: bytes, why: str) -> str:
    """A body that is no object of any kind."""
    return f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({_summarise_body(body)})"


def missing_kind_error(kind: str, body: bytes) -> str:
    """An object that does not say what it is."""
    text = body.decode("utf-8", "replace")
    missing = f"Object 'Kind' is missing in '{text}'"
    return f"the object provided is unrecognized (must be of type {kind}): {missing} ({_summarise_body(body)})"


def not_an_object_error(kind: str, body: bytes, value: Any) -> str:
    """JSON, but a list, a number or a text."""
    return unrecognised_object_error(kind, body, unmarshal_error(value, f"value of type {_VERSION_AND_KIND}"))


def _summarise_body(body: bytes) -> str:
    if not body:
        return "<empty>"
    plain = body[:1] == b"{"
    shown = body[:MAX_SHOWN_BYTES].decode("utf-8", "replace") if plain else body[:MAX_SHOWN_BYTES].hex()
    return shown + (" ..." if len(body) > MAX_SHOWN_BYTES else "")
