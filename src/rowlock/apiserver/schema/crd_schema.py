"""Custom kinds: pruning, defaults and the schema's validation, as kube-apiserver does them for a CRD.

`prune` drops undeclared fields (and reports them) and nulls, and fills in defaults. `validate` gives one
cause per broken rule with the real server's message. Paths have two notations, as on the real server:
`spec.m.Key.f` from the schema validation, `spec.m[Key].f` from the list type validation. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from rowlock.apiserver.schema import types
from rowlock.apiserver.schema.decoding import Walk
from rowlock.errors import Cause

INCOMPLETE = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation",
    "<nil>",
)

_BLOCKING_REASONS = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
"""Reasons after which a real server does not evaluate a schema's CEL rules, and says so."""


def add_incomplete_cause(causes: list[Cause]) -> list[Cause]:
    """The causes, followed by INCOMPLETE if one of them prevented further checks."""
    real_causes = [cause for cause in causes if cause is not INCOMPLETE]
    return (
        [*real_causes, INCOMPLETE] if any(cause.reason in _BLOCKING_REASONS for cause in real_causes) else real_causes
    )


def prune(value: Any, node: types.Schema, walk: Walk) -> Any:
    """A new value with only the fields that the schema declares, and with defaults."""
    node = types.resolve_ref(node)
    if value.__class__ is list:
        return _prune_list(value, node, walk)
    if value.__class__ is not dict:
        return value
    declared = node.get("properties") or {}
    if node.get("x-kubernetes-preserve-unknown-fields") and not declared:
        return value
    out: dict[str, Any] = {}
    for key, element in value.items():
        child = declared.get(key) or types.additional_schema(node)
        if child is None:
            walk.unknown_fields.append(walk.field_path(key))
        elif element.__class__ is str:  # most fields
            out[key] = element
        elif element is not None or child.get("nullable"):
            walk.path.append(key)
            out[key] = prune(element, child, walk)
            walk.path.pop()
    if walk.fill_defaults:
        for key, child in declared.items():
            if key not in out and "default" in child:
                out[key] = child["default"]
    return out


def _prune_list(value: list[Any], node: types.Schema, walk: Walk) -> list[Any]:
    child = node.get("items") or types.ANYTHING
    out = []
    if not {dict, list}.intersection(map(type, value)):
        return value[:]  # only scalars: there may be a hundred thousand of them
    for index, element in enumerate(value):
        walk.path.append(index)
        out.append(prune(element, child, walk))
        walk.path.pop()
    return out


# ---------------------------------------------------------------- validation


@dataclass(slots=True)
class _Errors:
    schema: list[Cause] = field(default_factory=list)
    lists: list[Cause] = field(default_factory=list)
    incomplete: bool = False
    """An error prevented other checks: a wrong type, a missing field."""
    fitting: set[int] = field(default_factory=set)
    """The ids of lists that have been checked and are valid."""
    prefix: str = ""
    """A prefix of paths that messages omit: in a status update it is `conditions`, not `status.conditions`."""


def validate(value: Any, node: types.Schema, *, at: str = "") -> tuple[list[Cause], list[Cause], bool]:
    """The causes from the schema; the causes from list types; and whether other rules could not be checked."""
    errors = _Errors(prefix=f"{at}." if at else "")
    if not _fits(value, node, errors.fitting):  # the slow check, which tracks paths, only if needed
        _check_value(value, node, at, at, errors)
    return errors.schema, errors.lists, errors.incomplete


_PLAIN_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
_RULES = frozenset({"enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength"})
_ANY_TEXT = {"type": "string"}
_MANY = 100
"""Length from which each element of a list is first checked with `_fits`: most elements are valid, and that is cheaper."""


def _fits(value: Any, node: types.Schema, fitting: set[int]) -> bool:
    """A fast check: True if the value is certainly valid; if False, `_check_value` must decide. The ids of valid lists are
    added to `fitting`, so that they are not checked twice."""
    node = types.resolve_ref(node) if "$ref" in node else node
    if value.__class__ is not _PLAIN_TYPES.get(node.get("type", "")) and not (
        node.get("x-kubernetes-int-or-string") and value.__class__ in (int, str)
    ):
        return False
    if value.__class__ is dict:
        declared, more = node.get("properties") or {}, node.get("additionalProperties")
        for key, element in value.items():
            child: Any = declared.get(key, more)
            is_free = child.__class__ is not dict or (element.__class__ is str and child == _ANY_TEXT)
            if not is_free and not _fits(element, child, fitting):
                return False
        required = node.get("required")
        return (not required or value.keys() >= set(required)) and len(value) >= node.get("minProperties", 0)
    if value.__class__ is list:
        child = node.get("items") or types.ANYTHING
        does_fit = (
            node.get("minItems", 0) <= len(value) <= node.get("maxItems", len(value))
            and _have_no_duplicates(value, node)
            and all(_fits(element, child, fitting) for element in value)
        )
        if does_fit:
            fitting.add(id(value))
        return does_fit
    if value.__class__ is int:
        is_small = -(2**31) <= value < 2**31 and node.get("minimum", value) <= value <= node.get("maximum", value)
        return is_small and (not node.get("enum") or value in node["enum"])
    if _RULES.isdisjoint(node):
        return True
    if value.__class__ is str and len(node) == 2 and node.get("format") == "date-time":  # as in each condition
        return _DATE_TIME.fullmatch(value) is not None
    _check_scalar(value, node, "", errors := _Errors())
    return not errors.schema


def _have_no_duplicates(values: list[Any], node: types.Schema) -> bool:
    kind = node.get("x-kubernetes-list-type")
    if kind != "map":
        return kind != "set"
    keys = _plain_keys(values, node)
    return keys is not None and len(set(keys)) == len(keys)


def _plain_keys(values: list[Any], node: types.Schema) -> list[tuple[Any, ...]] | None:
    """The keys of the elements of a list of type map; None if a key is missing, or neither a string nor an integer."""
    names = node.get("x-kubernetes-list-map-keys") or ()
    if not all(element.__class__ is dict for element in values):
        return None
    keys = [tuple([element.get(name) for name in names]) for element in values]
    return keys if {part.__class__ for key in keys for part in key} <= {str, int} else None


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"  # Go decodes larger integers as floats
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return {"str": "string", "list": "array", "dict": "object"}[type(value).__name__]


def _matches_type(value: Any, node: types.Schema) -> bool:
    expected = node.get("type")
    if node.get("x-kubernetes-int-or-string"):
        return _json_type(value) in ("integer", "string")
    if expected is None:
        return True
    actual = _json_type(value)
    return actual == expected or (expected == "number" and actual == "integer")


def _check_value(value: Any, node: types.Schema, path: str, brackets: str, errors: _Errors) -> None:
    node = types.resolve_ref(node)
    if not _matches_type(value, node):
        actual, body_path = _json_type(value), path.removeprefix(errors.prefix)
        expected = node.get("type", "integer,string")
        text = f'Invalid value: "{actual}": {body_path} in body must be of type {expected}: "{actual}"'
        errors.schema.append(Cause("FieldValueTypeInvalid", text, path))
        if node.get("x-kubernetes-int-or-string"):
            errors.schema.extend(_int_or_string_causes(actual, path, body_path))
        errors.incomplete = True
    elif isinstance(value, dict):
        _check_object(value, node, path, brackets, errors)
    elif isinstance(value, list):
        _check_list(value, node, path, brackets, errors)
    else:
        _check_scalar(value, node, path, errors)


def _int_or_string_causes(actual: str, path: str, body_path: str) -> list[Cause]:
    """The causes for a value that is neither integer nor string: of the schema's `anyOf`, and of its first alternative."""
    either = f'Invalid value: "": "{body_path}" must validate at least one schema (anyOf)'
    first = f'Invalid value: "{actual}": {body_path} in body must be of type integer: "{actual}"'
    return [Cause("FieldValueInvalid", either, "<nil>"), Cause("FieldValueTypeInvalid", first, path)]


def _check_object(value: dict[str, Any], node: types.Schema, path: str, brackets: str, errors: _Errors) -> None:
    dot = f"{path}." if path else ""
    declared, additional = node.get("properties") or {}, node.get("additionalProperties")
    for key, element in value.items():
        if key in declared:
            _check_value(element, declared[key], f"{dot}{key}", f"{brackets}.{key}" if brackets else key, errors)
        elif isinstance(additional, dict):
            _check_value(element, additional, f"{dot}{key}", f"{brackets}[{key}]", errors)
    for key in node.get("required") or ():
        if key not in value:
            errors.schema.append(Cause("FieldValueRequired", "Required value", f"{dot}{key}"))
            errors.incomplete = True
    if len(value) < node.get("minProperties", 0):
        errors.schema.append(_too_few(path, f"have at least {node['minProperties']} properties", errors))


def _check_list(value: list[Any], node: types.Schema, path: str, brackets: str, errors: _Errors) -> None:
    if id(value) in errors.fitting:
        return
    child = node.get("items") or types.ANYTHING
    is_text = types.resolve_ref(child) == _ANY_TEXT and set(map(type, value)) == {str}
    for index, element in enumerate(() if is_text else value):
        if element.__class__ is dict and len(value) > _MANY and _fits(element, child, errors.fitting):
            continue
        _check_value(element, child, f"{path}[{index}]", f"{brackets}[{index}]", errors)
    if len(value) < node.get("minItems", 0):
        errors.schema.append(_too_few(path, f"have at least {node['minItems']} items", errors))
    if len(value) > node.get("maxItems", len(value)):
        text = f"Too many: {len(value)}: must have at most {node['maxItems']} items"
        errors.schema.append(Cause("FieldValueTooMany", text, path))
        errors.incomplete = True
    kind = node.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    plain = _plain_keys(value, node) if kind == "map" else None
    identities = set[Any]()
    for index, element in enumerate(value):
        identity = plain[index] if plain is not None else _identity(element, node)
        if identity in identities:
            text = f"Duplicate value: {_identity(element, node)}"
            errors.lists.append(Cause("FieldValueDuplicate", text, f"{brackets}[{index}]"))
        identities.add(identity)


def _too_few(path: str, wanted: str, errors: _Errors) -> Cause:
    """The cause for a list or object that is too small; like the real server's, it does not tell the size."""
    return Cause(
        "FieldValueInvalid", f"Invalid value: 0: {path.removeprefix(errors.prefix)} in body should {wanted}", path
    )


def _identity(element: Any, node: types.Schema) -> str:
    if node.get("x-kubernetes-list-type") == "set" or not isinstance(element, dict):
        return compact_json(element)
    return compact_json({key: element[key] for key in node.get("x-kubernetes-list-map-keys") or () if key in element})


def compact_json(value: Any) -> str:
    """JSON as the real server prints values in messages."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _check_scalar(value: Any, node: types.Schema, path: str, errors: _Errors) -> None:
    body_path = path.removeprefix(errors.prefix)
    _check_bounds(value, node, path, errors)
    if node.get("enum") and value not in node["enum"]:
        supported = ", ".join(f'"{v}"' for v in node["enum"])
        text = f'Unsupported value: "{value}": supported values: {supported}'
        errors.schema.append(Cause("FieldValueNotSupported", text, path))
    pattern = node.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        text = f"Invalid value: {compact_json(value)}: {body_path} in body should match '{pattern}'"
        errors.schema.append(Cause("FieldValueInvalid", text, path))
    if node.get("format") == "int32" and isinstance(value, int) and not -(2**31) <= value < 2**31:
        text = f'Invalid value: "integer": {body_path} in body must be of type int32: "integer"'
        errors.schema.append(Cause("FieldValueTypeInvalid", text, path))
    if node.get("format") == "date-time" and isinstance(value, str) and not _DATE_TIME.fullmatch(value):
        text = f"Invalid value: {compact_json(value)}: {body_path} in body must be of type date-time: {compact_json(value)}"
        errors.schema.append(Cause("FieldValueTypeInvalid", text, path))


def _check_bounds(value: Any, node: types.Schema, path: str, errors: _Errors) -> None:
    """Check the bounds of a number's value or a string's length."""
    body_path = path.removeprefix(errors.prefix)
    if isinstance(value, str):
        if len(value) < node.get("minLength", 0):
            text = f"{body_path} in body should be at least {node['minLength']} chars long"
            errors.schema.append(Cause("FieldValueInvalid", f"Invalid value: {compact_json(value)}: {text}", path))
        if len(value) > node.get("maxLength", len(value)):
            text = f"Too long: may not be more than {node['maxLength']} bytes"
            errors.schema.append(Cause("FieldValueTooLong", text, path))
            errors.incomplete = True
    elif isinstance(value, int | float):
        least, most = node.get("minimum", value), node.get("maximum", value)
        if not least <= value <= most:
            bound = f"greater than or equal to {least}" if value < least else f"less than or equal to {most}"
            text = f"Invalid value: {value}: {body_path} in body should be {bound}"
            errors.schema.append(Cause("FieldValueInvalid", text, path))


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def scale_causes(value: Any, path: str) -> list[Cause]:
    """The causes from the scale subresource's check of the number of replicas at `path`."""
    field_path, steps = f".{path}", path.split(".")
    for depth, step in enumerate(steps, 1):
        if value is None or (isinstance(value, dict) and step not in value):
            return []
        if not isinstance(value, dict):
            return [_accessor_error(value, field_path, "." + ".".join(steps[:depth]), "map[string]interface{}")]
        value = value[step]
    if isinstance(value, bool) or not isinstance(value, int):
        return [_accessor_error(value, field_path, field_path, "int64")]
    if value < 0:
        return [Cause("FieldValueInvalid", f"Invalid value: {value}: should be a non-negative integer", field_path)]
    if value > 2**31 - 1:
        text = f"Invalid value: {value}: should be less than or equal to 2147483647"
        return [Cause("FieldValueInvalid", text, field_path)]
    return []


def _accessor_error(value: Any, field_path: str, accessed_path: str, expected: str) -> Cause:
    """The cause for a value on a path that has the wrong type."""
    go = {"str": "string", "int": "int64", "float": "float64", "bool": "bool", "dict": "map[string]interface {}"}
    kind = go.get(type(value).__name__, "[]interface {}")
    text = f"Invalid value: 0: {accessed_path} accessor error: {value} is of the type {kind}, expected {expected}"
    return Cause("FieldValueInvalid", text, field_path)
