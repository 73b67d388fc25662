"""Checks for server-side apply: a configuration must fit the schema, and the resulting object must be decodable.

Messages are a real server's, which checks the configuration as written and returns these errors as internal errors
without a reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.apiserver.apply import field_sets
from rowlock.apiserver.schema import crd_schema, decoding, json_errors, structs, types
from rowlock.apiserver.schema.decoding import Walk
from rowlock.errors import BadRequest, UnknownError, invalid
from rowlock.kinds import Kind
from rowlock.objects import Object

MAX_ERRORS = 100
"""The most errors that are reported for one configuration."""


def check_configuration(kind: Kind, config: dict[str, Any]) -> None:
    """Raise UnknownError for a configuration that does not fit the schema."""
    errors = []
    for error in _schema_errors(config, types.schema_of(kind), ""):
        errors.append(error)
        if len(errors) == MAX_ERRORS:
            break
    if errors:
        why = errors[0] if len(errors) == 1 else "errors:\n" + "\n".join(f"  {error}" for error in errors)
        raise UnknownError(f"failed to create typed patch object ({_describe_object(kind, config)}): {why}")


def convert_to_typed(kind: Kind, new: Object, config: dict[str, Any]) -> Object:
    """The merged object, decoded by its type. Raises UnknownError, Invalid."""
    if kind.custom:
        _check_no_nulls(kind, new)
        return new
    try:
        return decoding.decode(types.type_name(kind.group, kind.version, kind.name), new, Walk(fill_defaults=False))
    except BadRequest as error:
        gvk = f"{kind.group}/{kind.version}, Kind={kind.name}"
        why = f"unable to convert unstructured object to {gvk}: {error.message}"
        raise UnknownError(
            f"failed to convert new object ({_describe_object(kind, config)}) to proper version: {why}"
        ) from None


def _check_no_nulls(kind: Kind, new: Object) -> None:
    """In custom kinds, nulls of a configuration stay in the object, but fit no type. Raises Invalid."""
    body = {key: value for key, value in new.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    causes, lists, _ = crd_schema.validate(body, types.schema_of(kind))
    if any('"null"' in cause.message for cause in causes):
        raise invalid(kind.name, objects.name(new), crd_schema.add_incomplete_cause([*causes, *lists]), kind.group)


def _describe_object(kind: Kind, config: dict[str, Any]) -> str:
    meta = config.get("metadata")
    names = [meta.get(key) if isinstance(meta, dict) else "" for key in ("namespace", "name")]
    namespace, name = (text if isinstance(text, str) else "" for text in names)
    return f"{namespace}/{name}; {kind.group}/{kind.version}, Kind={kind.name}"


def _schema_errors(value: Any, node: types.Schema, at: str) -> Iterator[str]:
    node = types.resolve_ref(node)
    if value is None or node is types.ANYTHING:
        return
    atom_type = _atom_type(node)
    if not _is_of_type(value, atom_type):
        yield f"{at}: expected {_ATOM_TYPES[atom_type]}, got {json_errors.json_type(value)}"
    elif atom_type == "map":
        yield from _map_errors(value, node, at)
    elif atom_type == "list":
        yield from _list_errors(value, node, at)


def _atom_type(node: types.Schema) -> str:
    """The type in a real server's schema for apply, which treats strings with some formats as any scalar."""
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


def _is_of_type(value: Any, atom_type: str) -> bool:
    found = json_errors.json_type(value)
    if atom_type == "scalar":
        return found not in ("object", "array")
    return atom_type == "anything" or found == {"map": "object", "list": "array", "boolean": "bool"}.get(
        atom_type, atom_type
    )


_ATOM_TYPES = {
    "map": "map", "list": "list", "number": "numeric (int or float)", "string": "string", "boolean": "boolean",
    "scalar": "any scalar",
}  # fmt: skip
"""The names of types in structured-merge-diff's messages."""


def _map_errors(value: dict[str, Any], node: types.Schema, at: str) -> Iterator[str]:
    for key in sorted(value):
        child = types.field_schema(node, key)
        if child is None:
            yield f"{at}.{key}: field not declared in schema"
            return
        yield from _schema_errors(value[key], child, f"{at}.{key}")


def _list_errors(value: list[Any], node: types.Schema, at: str) -> Iterator[str]:
    child, atomic = types.item_schema(node), types.is_atomic(node)
    keys, seen_elements = node.get("x-kubernetes-list-map-keys") or (), set()
    for index, element in enumerate(value):
        step = f"[{index}]"
        if not atomic:
            if why := _list_key_error(element, keys, child):
                yield f"{at}: element {index}: {why}"
                return
            name = field_sets.path_element(element, node)
            step = field_sets.path_text((name,))
            if name in seen_elements:
                yield f"{at}: duplicate entries for key {step}"
            seen_elements.add(name)
        yield from _schema_errors(element, child, at + step)


def _list_key_error(element: Any, keys: Sequence[str], node: types.Schema) -> str:
    """Why an element of a keyed list or a set is invalid; "" if it is valid."""
    if not keys:
        element_type = {dict: "a map type", list: "a list type", type(None): "an explicit null"}.get(type(element))
        return f"associative list without keys has an element that's {element_type}" if element_type else ""
    if not isinstance(element, dict):
        return f"associative list with keys may not have {'a null element' if element is None else 'non-map elements'}"
    for key in keys:
        if element.get(key) is None and not _has_default(node, key):
            message = f'associative list with keys has an element that omits key field "{key}"'
            return f"{message} (and doesn't have default value)"
    return ""


def _has_default(node: types.Schema, key: str) -> bool:
    """Whether a key field has a default: in the schema, or because Go always writes the field."""
    return "default" in (types.field_schema(node, key) or {}) or key in structs.zeros(types.resolve_ref(node))
