"""Decodes JSON into typed objects of built-in kinds, like the real API server's decoder.

One pass over the object, with decoders compiled from the table of types at first use: values of the wrong type are
refused with Go's message, unknown fields are dropped and reported, nulls and Go's zero values are removed, quantities
and times become canonical, the defaults of each struct are filled in, and fields that Go always writes are
added (`structs.py`, `defaulting.py`). Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from rowlock.apiserver.schema import json_errors, rfc3339, structs, types
from rowlock.apiserver.schema.defaulting import SET_DEFAULTS
from rowlock.errors import BadRequest
from rowlock.quantity import canonicalize


@dataclass(slots=True)
class Walk:
    """The state of a decoding pass: the current path, and the fields that were dropped."""

    path: list[str | int] = field(default_factory=list)
    unknown_fields: list[str] = field(default_factory=list)
    duplicate_fields: list[str] = field(default_factory=list)
    fill_defaults: bool = True
    """False: only types and canonical forms, no defaults (for server-side apply)."""

    def field_path(self, *more: str | int) -> str:
        return dotted_path([*self.path, *more])


Decoder = Callable[[Any, Walk], Any]

_BOUNDS = {"int32": 2**31, "int64": 2**63}


def dotted_path(path: list[str | int]) -> str:
    """`spec.containers[0].image`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def decode(name: str, value: Any, walk: Walk) -> dict[str, Any]:
    """`value` as an object of the type `name`, a new dict. Raises BadRequest."""
    found: dict[str, Any] = decoder_for(name)(value, walk)
    return found


def _unmarshal_type_error(value: Any, walk: Walk, owner: str, go_type: str) -> BadRequest:
    path = ".".join(step for step in walk.path if isinstance(step, str))
    json_type = json_errors.json_type(value)
    if json_type == "number" and go_type.startswith("int"):
        json_type = f"number {value}"
    return BadRequest(f"json: cannot unmarshal {json_type} into Go struct field {owner}.{path} of type {go_type}")


def _short_name(name: str) -> str:
    return name.rpartition(".")[2].rpartition("/")[2]


def _go_name(name: str) -> str:
    """`v2.MetricTarget`: a type with its package, as in Go's messages."""
    return ".".join(name.split(".")[-2:])


@cache
def decoder_for(name: str) -> Decoder:
    """The decoder of a named type, cached, which also allows recursive types."""
    if name in _LEAF_TYPES:
        return _leaf_decoder(name, _short_name(name))
    node = types.schema(name)
    if "properties" in node:
        return _struct_decoder(name, node)
    return _schema_decoder(node, _short_name(name), structs.go_type(node))


def _lazy_decoder(name: str, owner: str) -> Decoder:
    """The decoder of a named type inside the type `owner`, which messages name."""
    if name in _LEAF_TYPES:
        return _leaf_decoder(name, owner)
    is_struct = "properties" in types.schema(name)

    def decoder(value: Any, walk: Walk) -> Any:
        if is_struct and value.__class__ is not dict:
            raise _unmarshal_type_error(value, walk, owner, _go_name(name))
        return decoder_for(name)(value, walk)

    return decoder


_LEAF_TYPES = frozenset({types.QUANTITY, types.INT_OR_STRING, types.TIME, types.MICRO_TIME})
"""Named types that are scalars in JSON."""


def _leaf_decoder(name: str, owner: str) -> Decoder:
    if name == types.QUANTITY:
        return _decode_quantity
    if name == types.INT_OR_STRING:
        return _int_or_string_decoder(owner)
    return _time_decoder(owner, rfc3339.normalise_time if name == types.TIME else rfc3339.normalise_micro_time)


def _schema_decoder(node: types.Schema, owner: str, go_type: str) -> Decoder:
    """The decoder of an unnamed schema (a scalar, a list, a map) with the type `go_type` in Go."""
    if "$ref" in node:
        return _lazy_decoder(node["$ref"], owner)
    kind = node.get("type")
    if kind == "array":
        items = node.get("items") or {}
        element_type = go_type[2:] if go_type.startswith("[]") else structs.go_type(items)
        return _list_decoder(_schema_decoder(items, owner, element_type), owner, go_type, structs.zero_value(items))
    if kind == "object" and isinstance(node.get("additionalProperties"), dict):
        more = node["additionalProperties"]
        value_type = go_type.partition("]")[2] or structs.go_type(more)
        is_text = _is_plain_text(more)
        return _map_decoder(
            _schema_decoder(more, owner, value_type), owner, go_type, structs.zero_value(more), is_text=is_text
        )
    if kind == "integer":
        return _integer_decoder(node.get("format", "int64"), owner)
    if node.get("format") == "byte":
        return _bytes_decoder(owner)
    return _scalar_decoder(owner, go_type, _SCALARS[kind]) if kind in _SCALARS else _decode_anything


_SCALARS: dict[Any, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "number": (int, float)}


def _is_plain_text(node: types.Schema) -> bool:
    """Whether a field takes any string unchanged."""
    return node.get("type") == "string" and "format" not in node


def _decode_anything(value: Any, walk: Walk) -> Any:
    return value


def _decode_quantity(value: Any, walk: Walk) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return _canonical_quantity(str(value))


_canonical_quantity = lru_cache(4096)(canonicalize)


def _int_or_string_decoder(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        number = value.__class__ is int and -(2**31) <= value < 2**31
        if not number and not isinstance(value, str):
            raise _unmarshal_type_error(value, walk, owner, "int32")
        return value

    return decoder


def _time_decoder(owner: str, parse: Callable[[str], str]) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _unmarshal_type_error(value, walk, owner, "string")
        return parse(value)

    return decoder


def _bytes_decoder(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _unmarshal_type_error(value, walk, owner, "[]uint8")
        try:
            base64.b64decode(value, validate=True)
        except ValueError:  # binascii.Error, or characters beyond ASCII
            bad = re.search(r"[^A-Za-z0-9+/=]", value)
            at = bad.start() if bad else len(value) // 4 * 4
            raise BadRequest(f"illegal base64 data at input byte {at}") from None
        return value

    return decoder


def _scalar_decoder(owner: str, go_type: str, classes: tuple[type, ...]) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ not in classes:
            raise _unmarshal_type_error(value, walk, owner, go_type)
        return value

    return decoder


def _integer_decoder(go_type: str, owner: str) -> Decoder:
    bound = _BOUNDS.get(go_type, 2**63)

    def decoder(value: Any, walk: Walk) -> Any:
        number = int(value) if value.__class__ is float and value.is_integer() else value
        if number.__class__ is not int or not -bound <= number < bound:
            raise _unmarshal_type_error(value, walk, owner, go_type)
        return number

    return decoder


def _list_decoder(item: Decoder, owner: str, go_type: str, zero: Any) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not list:
            raise _unmarshal_type_error(value, walk, owner, go_type)
        out, path = [], walk.path
        for index, element in enumerate(value):
            path.append(index)
            if element is None:
                element = zero
            if element is not None:
                out.append(item(element, walk))
            path.pop()
        return out

    return decoder


def _all_texts(value: dict[str, Any]) -> bool:
    for element in value.values():
        if element.__class__ is not str:
            return False
    return True


def _map_decoder(item: Decoder, owner: str, go_type: str, zero: Any, *, is_text: bool) -> Decoder:
    """`is_text`: values are any strings, as in most maps, which has a fast path."""

    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not dict:
            raise _unmarshal_type_error(value, walk, owner, go_type)
        if item is _decode_anything or (is_text and _all_texts(value)):
            return dict(value)
        return {key: item(element, walk) if element is not None else zero for key, element in value.items()}

    return decoder


class _Missing:
    """The missing fields of a struct: defaults in the table, computed defaults, and Go's zero values."""

    def __init__(self, name: str, node: types.Schema) -> None:
        self._rows: dict[str, Any] = node.get(structs.DEFAULTS, {})
        self._function = SET_DEFAULTS.get(name)
        self._zeros = structs.zeros(node)
        self._structs = {
            key: node["properties"][key]["$ref"] for key, zero in self._zeros.items() if zero.__class__ is dict
        }

    def filler(self) -> Callable[[dict[str, Any]], None] | None:
        """The cheapest function that fills in a dict of this type: it is called for every struct of every write."""
        if not self._rows and not self._zeros:
            return self._function
        return self._fill_zeros if not self._rows and self._function is None else self._fill

    def _fill(self, out: dict[str, Any]) -> None:
        for key, value in self._rows.items():
            if key not in out:
                out[key] = _copy_value(value)
        if self._function is not None:
            self._function(out)
        self._fill_zeros(out)

    def _fill_zeros(self, out: dict[str, Any]) -> None:
        for key, zero in self._zeros.items():
            if key not in out:
                out[key] = _copy_value(_empty_struct(self._structs[key])) if key in self._structs else zero


@cache
def _empty_struct(name: str) -> Any:
    """The decoded form of an empty struct."""
    return decoder_for(name)({}, Walk())


def _copy_value(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _copy_value(inner) for key, inner in value.items()} if value else {}
    return [_copy_value(inner) for inner in value] if value.__class__ is list else value


def _struct_decoder(name: str, node: types.Schema) -> Decoder:
    owner, facts, missing = _short_name(name), structs.fields(node), _Missing(name, node)
    fields, rows = dict[str, tuple[Decoder, bool, bool]](), node.get(structs.DEFAULTS, {})
    for key, child in node["properties"].items():
        about = facts.get(key, structs.TYPE_META)
        decode_field = _schema_decoder(child, owner, about.go or structs.go_type(child))
        # an empty list that is always written becomes null, because upstream stores protobuf, which has no empty lists
        keeps_zero = about.pointer or (about.always and key not in rows and child.get("type") != "array")
        fields[key] = decode_field, keeps_zero, _is_plain_text(child)

    fill = missing.filler()

    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not dict:
            raise _unmarshal_type_error(value, walk, owner, _go_name(name))
        out: dict[str, Any] = {}
        path = walk.path
        for key, element in value.items():
            field_entry = fields.get(key)
            if field_entry is None:
                walk.unknown_fields.append(walk.field_path(key))
                continue
            if element is None:
                continue
            if field_entry[2] and element.__class__ is str:  # most fields: always valid
                if element or field_entry[1]:
                    out[key] = element
                continue
            path.append(key)
            element = field_entry[0](element, walk)
            path.pop()
            if element or field_entry[1]:
                out[key] = element
        if walk.fill_defaults and fill is not None:
            fill(out)
        return out

    return decoder
