"""Configurations for server-side apply: do they fit the schema, and can the object that they make be read?

Both are answered in the words of a real server, which reads a configuration as it is written and gives such refusals
no reason: to it they are accidents of its own. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.cluster.api import custom, decoding, fieldsets, golang, types
from rowlock.cluster.api.decoding import Walk
from rowlock.cluster.api.wording import shown
from rowlock.errors import Accident, BadRequest, invalid
from rowlock.kinds import Kind
from rowlock.objects import Object

ERRORS = 100
"""That are told of one configuration."""


def check(kind: Kind, config: dict[str, Any]) -> None:
    """Raises Accident for a configuration whose fields are not the schema's."""
    found = []
    for error in _misfits(config, types.of(kind), ""):
        found.append(error)
        if len(found) == ERRORS:
            break
    if found:
        why = found[0] if len(found) == 1 else "errors:\n" + "\n".join(f"  {error}" for error in found)
        raise Accident(f"failed to create typed patch object ({_place(kind, config)}): {why}")


def read(kind: Kind, new: Object, config: dict[str, Any]) -> Object:
    """What a configuration has made, as its type has it. Raises Accident."""
    if kind.custom:
        _no_nulls(kind, new)
        return new
    try:
        return decoding.decode(types.name_of(kind.group, kind.version, kind.name), new, Walk(fill=False))
    except BadRequest as error:
        what = f"{kind.group}/{kind.version}, Kind={kind.name}"
        why = f"unable to convert unstructured object to {what}: {getattr(error, 'converted', error.message)}"
        raise Accident(f"failed to convert new object ({_place(kind, config)}) to proper version: {why}") from None


def _no_nulls(kind: Kind, new: Object) -> None:
    """Of custom kinds, what a configuration says is null stays so, and is no value of any type. Raises Invalid."""
    body = {key: value for key, value in new.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    causes, lists, _ = custom.validate(body, types.of(kind))
    if any('"null"' in cause.message for cause in causes):
        raise invalid(kind.name, objects.name(new), custom.with_incomplete([*causes, *lists]), kind.group)


def _place(kind: Kind, config: dict[str, Any]) -> str:
    meta = config.get("metadata")
    names = [meta.get(key) if isinstance(meta, dict) else "" for key in ("namespace", "name")]
    namespace, name = (text if isinstance(text, str) else "" for text in names)
    return f"{namespace}/{name}; {kind.group}/{kind.version}, Kind={kind.name}"


def _misfits(value: Any, node: types.Schema, at: str) -> Iterator[str]:
    node = types.resolved(node)
    if value is None or node is types.ANYTHING:
        return
    sort = _sort(node)
    if sort == "map":
        yield from (
            _of_map(value, node, at) if isinstance(value, dict) else (f"{at}: expected map, got {_plain(value)}",)
        )
    elif sort == "list":
        yield from (
            _of_list(value, node, at) if isinstance(value, list) else (f"{at}: expected list, got {_plain(value)}",)
        )
    elif why := _scalar(value, sort):
        yield f"{at}: {why}"


def _sort(node: types.Schema) -> str:
    """What a real server's schema for applying makes of a type: texts of special forms may be any scalar."""
    kind = node.get("type")
    if node.get("format") == "int-or-string":
        return "anything"
    if node.get("x-kubernetes-int-or-string") or node.get("format") == "date-time":
        return "scalar"
    if kind in ("integer", "number"):
        return "number"
    if kind == "object" or "properties" in node or "additionalProperties" in node:
        return "map"
    if kind in ("string", "boolean"):
        return str(kind)
    if kind == "array":
        return "list"
    return "anything" if node.get("x-kubernetes-preserve-unknown-fields") else "scalar"


def _scalar(value: Any, sort: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if sort == "number" and not number:
        return f"expected numeric (int or float), got {_go_type(value)}"
    if sort == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if sort == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {_plain(value)}"
    if sort == "scalar" and isinstance(value, dict | list):
        return f"expected any scalar, got {_plain(value)}"
    return ""


def _of_map(value: dict[str, Any], node: types.Schema, at: str) -> Iterator[str]:
    for key in sorted(value):
        child = types.field(node, key)
        if child is None:
            yield f"{at}.{key}: field not declared in schema"
            return
        yield from _misfits(value[key], child, f"{at}.{key}")


def _of_list(value: list[Any], node: types.Schema, at: str) -> Iterator[str]:
    child, atomic = types.items(node), types.atomic(node)
    keys, seen = node.get("x-kubernetes-list-map-keys") or (), set()
    for index, element in enumerate(value):
        step = f"[{index}]"
        if not atomic:
            if why := _nameless(element, keys, child):
                yield f"{at}: element {index}: {why}"
                return
            name = fieldsets.element_of(element, node)
            step = fieldsets.spoken((name,))
            if name in seen:
                yield f"{at}: duplicate entries for key {step}"
            seen.add(name)
        yield from _misfits(element, child, at + step)


def _nameless(element: Any, keys: Sequence[str], node: types.Schema) -> str:
    """Why an element of a list with keys, or of a set, has no name."""
    if not keys:
        sort = {dict: "a map type", list: "a list type", type(None): "an explicit null"}.get(type(element))
        return f"associative list without keys has an element that's {sort}" if sort else ""
    if not isinstance(element, dict):
        return f"associative list with keys may not have {'a null element' if element is None else 'non-map elements'}"
    known = types.resolved(node).get("required") or ()  # which is there in Go, whatever is written
    for key in keys:
        if element.get(key) is None and key not in known and "default" not in (types.field(node, key) or {}):
            said = f'associative list with keys has an element that omits key field "{key}"'
            return f"{said} (and doesn't have default value)"
    return ""


def _go_type(value: Any) -> str:
    names = {bool: "bool", str: "string", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), "int64")


def _plain(value: Any) -> str:
    """As Go prints a pointer to a value."""
    return f"&{{{golang.printed(value)}}}"


def _go_syntax(value: Any) -> str:
    """As Go would write a value in a program."""
    if isinstance(value, dict):
        inner = ", ".join(f"{shown(k)}:{_go_syntax(v)}" for k, v in sorted(value.items()))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return json.dumps(value, ensure_ascii=False)
