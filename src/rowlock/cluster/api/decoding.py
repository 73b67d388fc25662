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

from rowlock.cluster.api import golang, moments, types
from rowlock.cluster.api.defaults import DEFAULTS
from rowlock.cluster.api.go_types import MAPS, TEXTS
from rowlock.errors import BadRequest
from rowlock.quantity import canonical


@dataclass(slots=True)
class Walk:
    """Where the decoder is, and what it had to drop."""

    path: list[str | int] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    fill: bool = True
    """False: types and canonical forms only, no defaults (server-side apply's configurations)."""

    def here(self, *more: str | int) -> str:
        return dotted([*self.path, *more])


Decoder = Callable[[Any, Walk], Any]


class Nothing:
    """What a decoder returns for a value that is not kept."""


NOTHING = Nothing()

# Zero values that Go drops, because the field is neither a pointer nor always written.
_DROPPED_FALSE = frozenset(
    "hostNetwork hostPID hostIPC readOnly stdin stdinOnce tty unschedulable publishNotReadyAddresses globalDefault"
    " paused".split()
)
_DROPPED_ZERO = frozenset("generation hostPort nodePort initialDelaySeconds healthCheckNodePort count".split())
_KEPT_EMPTY_TEXT = frozenset(
    "storageClassName holderIdentity type value fieldPath continue fsGroupChangePolicy nodeAffinityPolicy"
    " nodeTaintsPolicy procMount mountPropagation localhostProfile".split()
)
_KEPT_EMPTY_LIST = frozenset({"io.k8s.api.rbac.v1.Role.rules"})
_BOUNDS = {"int32": 2**31, "int64": 2**63}


def dotted(path: list[str | int]) -> str:
    """`spec.containers[0].image`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def decode(name: str, value: Any, walk: Walk) -> dict[str, Any]:
    """`value` as an object of the type `name`, a new dict. Raises BadRequest."""
    found: dict[str, Any] = compiled(name)(value, walk)
    return found


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


class Mistyped(BadRequest):
    """A value of the wrong type; `converted` is what is said of it when it was in memory already (`golang.converted`)."""

    def __init__(self, message: str, converted: str) -> None:
        super().__init__(message)
        self.converted = converted


def _wrong(value: Any, walk: Walk, owner: str, go: str, converted: str = "") -> Mistyped:
    path = ".".join(step for step in walk.path if isinstance(step, str))
    what = _json_type(value)
    if what == "number" and go.startswith("int"):
        what = f"number {value}"
    text = f"json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go}"
    return Mistyped(text, converted or golang.converted(value, go, text=go == "string"))


def _short(name: str) -> str:
    return name.rpartition(".")[2].rpartition("/")[2]


def _go_name(name: str) -> str:
    """`v2.MetricTarget`: a type with its package, as Go's sentences have it."""
    return ".".join(name.split(".")[-2:])


@cache
def compiled(name: str) -> Decoder:
    """The decoder of a named type; recursive types find themselves here."""
    if name in _LEAVES:
        return _leaf(name, _short(name))
    node = types.schema(name)
    if "properties" in node:
        return _struct(name, node)
    return _value(node, name, _short(name))


def _lazy(name: str, owner: str) -> Decoder:
    """A named type inside another, `owner`, whom a value of the wrong sort is blamed on."""
    if name in _LEAVES:
        return _leaf(name, owner)
    structured = "properties" in types.schema(name)

    def decoder(value: Any, walk: Walk) -> Any:
        if structured and value.__class__ is not dict:
            raise _wrong(value, walk, owner, _go_name(name))
        return compiled(name)(value, walk)

    return decoder


_LEAVES = frozenset({types.QUANTITY, types.INT_OR_STRING, types.TIME, types.MICRO_TIME})
"""Named types that are one value."""


def _leaf(name: str, owner: str) -> Decoder:
    if name == types.QUANTITY:
        return _quantity
    if name == types.INT_OR_STRING:
        return _int_or_string(owner)
    return _time(owner, moments.second if name == types.TIME else moments.microsecond)


_GO = {"string": "string", "boolean": "bool", "number": "float64"}


def _value(node: types.Schema, owner: str, go_owner: str, go: str = "", map_: str = "") -> Decoder:
    """The decoder of an unnamed schema: a scalar, a list, a map; `go` is the type that its elements or texts have in
    Go, where that is one of their own, `map_` the type of a map."""
    if "$ref" in node:
        return _lazy(node["$ref"], go_owner)
    kind = node.get("type")
    if kind == "array":
        items = node.get("items") or {}
        item = _value(items, owner, go_owner, go)
        called = go or items.get("format") or _GO.get(items.get("type", ""), "")
        return _list(item, go_owner, called, _zero(items))
    if kind == "object":
        more = node.get("additionalProperties")
        if not isinstance(more, dict):
            return _anything
        held = "map[string][]uint8" if more.get("format") == "byte" else "map[string]string"
        held = "v1.ResourceList" if more.get("$ref") == types.QUANTITY else map_ or held
        return _map(_value(more, owner, go_owner, go), go_owner, held, _zero(more), texts=_plain_text(more))
    if kind == "string":
        return _bytes(go_owner) if node.get("format") == "byte" else _text(go_owner, go or "string")
    if kind == "boolean":
        return _boolean(go_owner)
    if kind == "integer":
        return _integer(node.get("format", "int64"), go_owner)
    if kind == "number":
        return _number(go_owner)
    return _anything


def _plain_text(node: types.Schema) -> bool:
    """A field that takes any text as it is."""
    return node.get("type") == "string" and "format" not in node


def _zero(node: types.Schema) -> Any:
    """What Go makes of a null among the elements of a list or map: an element all the same, with nothing in it."""
    if "$ref" in node:
        leaf = {types.QUANTITY: "0", types.INT_OR_STRING: 0}
        return leaf.get(node["$ref"], {} if "properties" in types.schema(node["$ref"]) else None)
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(node.get("type", ""))


def _anything(value: Any, walk: Walk) -> Any:
    return value


def _quantity(value: Any, walk: Walk) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return _canonical(str(value))


_canonical = lru_cache(4096)(canonical)


def _int_or_string(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        number = value.__class__ is int and -(2**31) <= value < 2**31
        if not number and not isinstance(value, str):
            raise _wrong(value, walk, owner, "int32", golang.unmarshal(value, "value of type int32"))
        return value

    return decoder


def _time(owner: str, read: Callable[[str], str]) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _wrong(value, walk, owner, "string", golang.unmarshal(value, "value of type string"))
        return read(value)

    return decoder


def _bytes(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if not isinstance(value, str):
            raise _wrong(value, walk, owner, "[]uint8")
        try:
            base64.b64decode(value, validate=True)
        except ValueError:  # binascii's own, and what base64 says to characters beyond ASCII
            bad = re.search(r"[^A-Za-z0-9+/=]", value)
            at = bad.start() if bad else len(value) // 4 * 4
            why = f"illegal base64 data at input byte {at}"
            raise Mistyped(why, f"error decoding from json: {why}") from None
        return value

    return decoder


def _text(owner: str, go: str = "string") -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not str:
            raise _wrong(value, walk, owner, go, golang.converted(value, go, text=True))
        return value

    return decoder


def _boolean(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not bool:
            raise _wrong(value, walk, owner, "bool")
        return value

    return decoder


def _integer(go: str, owner: str) -> Decoder:
    bound = _BOUNDS.get(go, 2**63)

    def decoder(value: Any, walk: Walk) -> Any:
        whole = int(value) if value.__class__ is float and value.is_integer() else value
        if whole.__class__ is not int or not -bound <= whole < bound:
            raise _wrong(value, walk, owner, go)
        return whole

    return decoder


def _number(owner: str) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not int and value.__class__ is not float:
            raise _wrong(value, walk, owner, "float64")
        return value

    return decoder


def _list(item: Decoder, owner: str, key: str, zero: Any) -> Decoder:
    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not list:
            raise _wrong(value, walk, owner, "[]interface {}" if key == "" else f"[]{key}")
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


def _map(item: Decoder, owner: str, go: str, zero: Any, *, texts: bool = False) -> Decoder:
    """`texts`: any text will do, and most maps hold nothing else."""

    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not dict:
            raise _wrong(value, walk, owner, go)
        if item is _anything or (texts and _all_texts(value)):
            return dict(value)
        return {key: item(element, walk) if element is not None else zero for key, element in value.items()}

    return decoder


def _keeps_empty(name: str, key: str, node: types.Schema) -> bool:
    """Whether an empty text, list or map of this field is written out."""
    kind = types.resolved(node).get("type")
    if kind == "string":
        return key in _KEPT_EMPTY_TEXT and not name.endswith(
            (".EnvVar", ".Taint", ".Toleration", ".Secret", ".SELinuxOptions")
        )
    return f"{name}.{key}" in _KEPT_EMPTY_LIST


def _struct(name: str, node: types.Schema) -> Decoder:
    owner = _short(name)
    required = frozenset(node.get("required") or ())
    fields: dict[str, tuple[Decoder, bool, bool]] = {}
    for key, child in node["properties"].items():
        own, place = child.get("items", {}).get("$ref", ""), f"{owner}.{key}"
        read = _value(child, name, owner, _go_name(own) if own else TEXTS.get(place, ""), MAPS.get(place, ""))
        fields[key] = read, key in required or _keeps_empty(name, key, child), _plain_text(child)
    fill = DEFAULTS.get(name)
    has_spec = name in _HAVE_A_SPEC

    def decoder(value: Any, walk: Walk) -> Any:
        if value.__class__ is not dict:
            raise _wrong(value, walk, owner, _go_name(name))
        out: dict[str, Any] = {}
        path = walk.path
        for key, element in value.items():
            known = fields.get(key)
            if known is None:
                walk.unknown.append(walk.here(key))
                continue
            if element is None:
                continue
            if known[2] and element.__class__ is str:  # most fields: nothing can be wrong with them
                if element or known[1]:
                    out[key] = element
                continue
            path.append(key)
            element = known[0](element, walk)
            path.pop()
            if not element and not known[1] and _dropped(key, element):
                continue
            out[key] = element
        if has_spec and walk.fill and "spec" not in out:
            out["spec"] = fields["spec"][0]({}, walk)
        if fill is not None and walk.fill:
            fill(out)
        return out

    return decoder


_HAVE_A_SPEC = frozenset(
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


def _dropped(key: str, empty: Any) -> bool:
    if empty.__class__ is bool:
        return key in _DROPPED_FALSE
    if empty.__class__ is dict:
        return key in _MAPS
    if empty.__class__ is int or empty.__class__ is float:
        return key in _DROPPED_ZERO
    return True  # "" and []


_MAPS = frozenset(
    "labels annotations data binaryData stringData nodeSelector limits requests matchLabels overhead hard used"
    " capacity allocatable minResources parameters options volumeAttributes".split()
)
