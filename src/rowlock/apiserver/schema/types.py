"""The table of types: what fields the objects of our kinds have. Facts only, made by `scripts/make_types.py`.

Decoding, pruning, strict validation, defaults of custom kinds, OpenAPI, `kubectl explain`, strategic merge and
server-side apply all read this table; there is no second list. It is loaded when somebody first asks (4 ms).
A schema is OpenAPI 3 without prose; `$ref` holds the bare name of another type.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from rowlock.kinds import Kind

Schema = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}


class _Table(msgspec.Struct):
    """The file. The JSON of a type is read when somebody first asks for it: most servers never need most types."""

    release: str
    kinds: dict[str, str]
    types: dict[str, msgspec.Raw]


@cache
def _table() -> _Table:
    text = resources.files("rowlock.apiserver.schema").joinpath("types.json").read_bytes()
    return msgspec.json.decode(text, type=_Table)


def release() -> str:
    """The Kubernetes release that the table was made from."""
    return _table().release


def type_names() -> list[str]:
    """The names of all types."""
    return list(_table().types)


@cache
def schema(name: str) -> Schema:
    """The type of that name. Raises KeyError: a name comes from the table itself or from code."""
    found: Schema = _share(msgspec.json.decode(_table().types[name]))
    return found


_SHARED: dict[Any, Any] = {}


def _share(node: Any) -> Any:
    """The same value, in which equal small parts (`{"type":"string"}`) are one object: most schemas are such parts."""
    if isinstance(node, dict):
        shared = {key: _share(value) for key, value in node.items()}
        if all(value.__class__ is str for value in node.values()):
            return _SHARED.setdefault(tuple(shared.items()), shared)
        return shared
    if isinstance(node, list):
        return [_share(value) for value in node]
    return _SHARED.setdefault(node, node) if isinstance(node, str) else node


@lru_cache(1024)
def type_name(group: str, version: str, kind: str) -> str:
    """The name of a kind's type; "" for a kind that has none."""
    key = "/".join(part for part in (group, version, kind) if part)
    return _table().kinds.get(key, "")


def schema_of(kind: Kind) -> Schema:
    """The type of a kind's objects."""
    found = type_name(kind.group, kind.version, kind.name)
    return schema(found) if found else ANYTHING


def resolve_ref(node: Schema) -> Schema:
    """The schema itself, whatever reference led here."""
    while "$ref" in node:
        node = schema(node["$ref"])
    return node


def field_schema(node: Schema, key: str) -> Schema | None:
    """The schema of one field of an object, declared or of a map; None when it is not declared."""
    node = resolve_ref(node)
    found = (node.get("properties") or {}).get(key)
    if found is None:
        found = additional_schema(node)
    return None if found is None else resolve_ref(found)


def additional_schema(node: Schema) -> Schema | None:
    """The schema of fields that an object does not declare; None when it may have none."""
    more = node.get("additionalProperties")
    if isinstance(more, dict):
        return more
    return ANYTHING if more is True or node.get("x-kubernetes-preserve-unknown-fields") else None


def item_schema(node: Schema) -> Schema:
    """The schema of a list's elements."""
    found = resolve_ref(node).get("items")
    return resolve_ref(found) if isinstance(found, dict) else ANYTHING


def is_map(node: Schema) -> bool:
    """A map with free keys (labels), not a structure with declared ones."""
    return "properties" not in node and isinstance(node.get("additionalProperties"), dict)


def is_atomic(node: Schema) -> bool:
    """One value to server-side apply and to merges, although it has parts."""
    if node.get("type") == "array":
        return bool(node.get("x-kubernetes-list-type", "atomic") == "atomic")
    return bool(node.get("x-kubernetes-map-type") == "atomic")
