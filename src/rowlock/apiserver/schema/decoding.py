"""JSON in, typed object out: what the real API server's decoder does to objects of built-in kinds.

One pass over the object, compiled from the table of types when a kind is first seen: values of the wrong type are
refused with Go's own sentence, unknown fields are dropped and reported, nulls and Go's zero values vanish, quantities
and times become canonical, and the defaults of each structure are filled in (`defaults.py`). Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from rowlock.apiserver.schema import go_errors, rfc3339, types
from rowlock.apiserver.schema.defaulting import DEFAULTS
from rowlock.apiserver.schema.go_types import MAP_FIELD_TYPES, STRING_FIELD_TYPES
from rowlock.errors import BadRequest
from rowlock.quantity import canonicalize


@dataclass(slots=True)
class Walk:
    """Where the decoder is, and what it had to drop."""

    path: list[str | int] = field(default_factory=list)
    unknown_fields: list[str] = field(default_factory=list)
    fill_defaults: bool = True
    """False: types and canonical forms only, no defaults (server-side apply's configurations)."""

    def field_path(self, *more: str | int) -> str:
        return dotted_path([*self.path, *more])


Decoder = Callable[[Any, Walk], Any]


class Nothing:
    """What a decoder returns for a value that is not kept."""


NOTHING = Nothing()

# Zero values that Go drops, because the field is neither a pointer nor always written.
_OMITEMPTY_BOOLEANS = frozenset(
    "hostNetwork hostPID hostIPC readOnly stdin stdinOnce tty unschedulable publishNotReadyAddresses globalDefault"
    " paused".split()
)
_OMITEMPTY_NUMBERS = frozenset("generation hostPort nodePort initialDelaySeconds healthCheckNodePort count".split())
_KEPT_EMPTY_TEXT = frozenset(
    "storageClassName holderIdentity type value fieldPath continue fsGroupChangePolicy nodeAffinityPolicy"
    " nodeTaintsPolicy procMount mountPropagation localhostProfile".split()
)
_KEPT_EMPTY_LIST = frozenset({"io.k8s.api.rbac.v1.Role.rules"})
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


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


class UnmarshalTypeError(BadRequest):
    """A value of the wrong type; `converted` is what is said of it when it was in memory already (`golang.converted`)."""

    def __init__(self, message: str, converted: str) -> None:
        super().__init__(message)
        self.converted = converted


def _unmarshal_type_error(value: Any, walk: Walk, owner: str, go_type: str, converted: str = "") -> UnmarshalTypeError:
    path = ".".join(step for step in walk.path if isinstance(step, str))
    json_type = _json_type(value)
    if json_type == "number" and go_type.startswith("int"):
        json_type = f"number {value}"
    text = f"json: cannot unmarshal {json_type} into Go struct field {owner}.{path} of type {go_type}"
    return UnmarshalTypeError(
        text, converted or go_errors.conversion_error(value, go_type, is_text=go_type == "string")
    )


def _short_name(name: str) -> str:
    return name.rpartition(".")[2].rpartition("/")[2]


def _go_name(name: str) -> str:
    """`v2.MetricTarget`: a type with its package, as Go's sentences have it."""
    return ".".join(name.split(".")[-2:])


@cache
def decoder_for(name: str) -> Decoder:
    """The decoder of a named type; recursive types find themselves here."""
    if name in _LEAF_TYPES:
        return _leaf_decoder(name, _short_name(name))
    node = types.schema(name)
    if "properties" in node:
        return _struct_decoder(name, node)
    return _schema_decoder(node, name, _short_name(name))


def _lazy_decoder(name: str, owner: str) -> Decoder:
    """A named type inside another, `owner`, whom a value of the wrong sort is blamed on."""
    if name in _LEAF_TYPES:
        return _leaf_decoder(name, owner)
    is_struct = "properties" in types.schema(name)

    def decoder(value: Any, walk: Walk) -> Any:
        if is_struct and value.__class__ is not dict:
            raise _unmarshal_type_error(value, walk, owner, _go_name(name))
        return decoder_for(name)(value, walk)

    return decoder


_LEAF_TYPES = frozenset({types.QUANTITY, types.INT_OR_STRING, types.TIME, types.MICRO_TIME})
"""Named types that are one value."""


def _leaf_decoder(name: str, owner: str) -> Decoder:
    if name == types.QUANTITY:
        return _decode_quantity
    if name == types.INT_OR_STRING:
        return _int_or_string_decoder(owner)
    return _time_decoder(owner, rfc3339.normalise_time if name == types.TIME else rfc3339.normalise_micro_time)


_GO_TYPES = {"string": "string", "boolean": "bool", "number": "float64"}


def _schema_decoder(node: types.Schema, owner: str, go_owner: str, go_type: str = "", map_: str = "") -> Decoder:
    """The decoder of an unnamed schema: a scalar, a list, a map; `go_type` is the type that its elements or texts have in
    Go, where that is one of their own, `map_` the type of a map."""
    if "$ref" in node:
        return _lazy_decoder(node["$ref"], go_owner)
    kind = node.get("type")
    if kind == "array":
        items = node.get("items") or {}
        item = _schema_decoder(items, owner, go_owner, go_type)
        element_type = go_type or items.get("format") or _GO_TYPES.get(items.get("type", ""), "")
        return _list_decoder(item, go_owner, element_type, _zero_value(items))
    if kind == "object":
        more = node.get("additionalProperties")
        if not isinstance(more, dict):
            return _decode_anything
        go_map_type = "map[string][]uint8" if more.get("format") == "byte" else "map[string]string"
        go_map_type = "v1.ResourceList" if more.get("$ref") == types.QUANTITY else map_ or go_map_type
        return _map_decoder(
            _schema_decoder(more, owner, go_owner, go_type),
            go_owner,
            go_map_type,
            _zero_value(more),
            texts=_is_plain_text(more),
        )
    if kind == "string":
        return (
            _bytes_decoder(go_owner) if node.get("format") == "byte" else _text_decoder(go_owner, go_type or "string")
        )
    if kind == "boolean":
        return _boolean_decoder(go_owner)
    if kind == "integer":
        return _integer_decoder(node.get("format", "int64"), go_owner)
    if kind == "number":
        return _number_decoder(go_owner)
    return _decode_anything


def _is_plain_text(node: types.Schema) -> bool:
    """A field that takes any text as it is."""
    return node.get("type") == "string" and "format" not in node


def _zero_value(node: types.Schema) -> Any:
    """What Go makes of a null among the elements of a list or map: an element all the same, with nothing in it."""
    if "$ref" in node:
        leaf = {types.QUANTITY: "0", types.INT_OR_STRING: 0}
        return leaf.get(node["$ref"], {} if "properties" in types.schema(node["$ref"]) else None)
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(node.get("type", ""))


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
            raise _unmarshal_type_error(
                value, walk, owner, "int32", go_errors.unmarshal_error(value, "value of type int32")
            )
        return value

    return decoder


def _time_decoder(owner: str, parse: Callable[[str], str]) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _unmarshal_type_error(
                value, walk, owner, "string", go_errors.unmarshal_error(value, "value of type string")
            )
        return parse(value)

    return decoder


def _bytes_decoder(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _unmarshal_type_error(value, walk, owner, "[]uint8")
        try:
            base64.b64decode(value, validate=True)
        except ValueError:  # binascii's own, and what base64 says to characters beyond ASCII
            bad = re.search(r"[^A-Za-z0-9+/=]", value)
            at = bad.start() if bad else len(value) // 4 * 4
            why = f"illegal base64 data at input byte {at}"
            raise UnmarshalTypeError(why, f"error decoding from json: {why}") from None
        return value

    return decoder


def _text_decoder(owner: str, go_type: str = "string") -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not str:
            raise _unmarshal_type_error(
                value, walk, owner, go_type, go_errors.conversion_error(value, go_type, is_text=True)
            )
        return value

    return decoder


def _boolean_decoder(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not bool:
            raise _unmarshal_type_error(value, walk, owner, "bool")
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


def _number_decoder(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not int and value.__class__ is not float:
            raise _unmarshal_type_error(value, walk, owner, "float64")
        return value

    return decoder


def _list_decoder(item: Decoder, owner: str, element_type: str, zero: Any) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not list:
            raise _unmarshal_type_error(
                value, walk, owner, "[]interface {}" if element_type == "" else f"[]{element_type}"
            )
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


def _map_decoder(item: Decoder, owner: str, go_type: str, zero: Any, *, texts: bool = False) -> Decoder:
    """`texts`: any text will do, and most maps hold nothing else."""

    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not dict:
            raise _unmarshal_type_error(value, walk, owner, go_type)
        if item is _decode_anything or (texts and _all_texts(value)):
            return dict(value)
        return {key: item(element, walk) if element is not None else zero for key, element in value.items()}

    return decoder


def _keeps_empty(name: str, key: str, node: types.Schema) -> bool:
    """Whether an empty text, list or map of this field is written out."""
    kind = types.resolve_ref(node).get("type")
    if kind == "string":
        return key in _KEPT_EMPTY_TEXT and not name.endswith(
            (".EnvVar", ".Taint", ".Toleration", ".Secret", ".SELinuxOptions")
        )
    return f"{name}.{key}" in _KEPT_EMPTY_LIST


def _struct_decoder(name: str, node: types.Schema) -> Decoder:
    owner = _short_name(name)
    required = frozenset(node.get("required") or ())
    fields: dict[str, tuple[Decoder, bool, bool]] = {}
    for key, child in node["properties"].items():
        item_type, field_key = child.get("items", {}).get("$ref", ""), f"{owner}.{key}"
        decode_field = _schema_decoder(
            child,
            name,
            owner,
            _go_name(item_type) if item_type else STRING_FIELD_TYPES.get(field_key, ""),
            MAP_FIELD_TYPES.get(field_key, ""),
        )
        fields[key] = decode_field, key in required or _keeps_empty(name, key, child), _is_plain_text(child)
    set_defaults = DEFAULTS.get(name)
    has_spec = name in _ALWAYS_HAVE_SPEC

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
            if field_entry[2] and element.__class__ is str:  # most fields: nothing can be wrong with them
                if element or field_entry[1]:
                    out[key] = element
                continue
            path.append(key)
            element = field_entry[0](element, walk)
            path.pop()
            if not element and not field_entry[1] and _omits_empty(key, element):
                continue
            out[key] = element
        if has_spec and walk.fill_defaults and "spec" not in out:
            out["spec"] = fields["spec"][0]({}, walk)
        if set_defaults is not None and walk.fill_defaults:
            set_defaults(out)
        return out

    return decoder


_ALWAYS_HAVE_SPEC = frozenset(
    {
        "io.k8s.api.core.v1.Pod",
        "io.k8s.api.core.v1.Service",
        "io.k8s.api.core.v1.PersistentVolumeClaim",
        "io.k8s.api.core.v1.ResourceQuota",
        "io.k8s.api.core.v1.Node",
        "io.k8s.api.coordination.v1.Lease",
    }
)
"""Whose `spec` is there, with its defaults, even where nobody wrote one."""


def _omits_empty(key: str, empty: Any) -> bool:
    if empty.__class__ is bool:
        return key in _OMITEMPTY_BOOLEANS
    if empty.__class__ is dict:
        return key in _OMITEMPTY_MAPS
    if empty.__class__ is int or empty.__class__ is float:
        return key in _OMITEMPTY_NUMBERS
    return True  # "" and []


_OMITEMPTY_MAPS = frozenset(
    "labels annotations data binaryData stringData nodeSelector limits requests matchLabels overhead hard used"
    " capacity allocatable minResources parameters options volumeAttributes".split()
)
