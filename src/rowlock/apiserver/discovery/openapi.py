"""OpenAPI v3 and v2 from the table of types: enough for `kubectl explain`, `apply`, validation and generated clients.

The table has no descriptions; they are rowlock's own (`descriptions.json`). Each document is built at its first request.
Pure.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from rowlock import kinds
from rowlock.apiserver.discovery import groups, openapi_v2_protobuf
from rowlock.apiserver.http import requests
from rowlock.apiserver.schema import structs, types
from rowlock.kinds import Kind

Document = dict[str, Any]

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_V3, _V2 = "#/components/schemas/", "#/definitions/"


class _Descriptions(msgspec.Struct):
    """rowlock's descriptions for `kubectl explain`: by kind, and by field name wherever the field occurs."""

    kinds: dict[str, str]
    fields: dict[str, str]


@cache
def descriptions() -> _Descriptions:
    text = resources.files("rowlock.apiserver.discovery").joinpath("descriptions.json").read_bytes()
    return msgspec.json.decode(text, type=_Descriptions)


def group_versions() -> list[str]:
    """The paths of the index: `api/v1`, `apis/kubeflow.org/v1`, …"""
    return [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in groups.resources()]


@cache
def encode_document(path: str) -> bytes:
    """`GET /openapi/v3/PATH`, or for "v2" `GET /openapi/v2`, as JSON. Raises KeyError."""
    return msgspec.json.encode(v2_document() if path == "v2" else v3_document(path))


@cache
def v3_index() -> Document:
    """`GET /openapi/v3`"""
    paths = {}
    for path in group_versions():
        digest = hashlib.sha256(encode_document(path)).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _parse_path(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])


_SERVED_KINDS = (*kinds.KINDS, kinds.EVENTS_V1_EVENT)
_LISTED_KINDS = frozenset((k.group, k.version, k.name) for k in _SERVED_KINDS)


@cache
def v2_protobuf() -> bytes:
    """`GET /openapi/v2` in protobuf, which kubectl requests."""
    return openapi_v2_protobuf.encode_document(v2_document())


_INFO = {"title": "rowlock", "version": groups.GIT_VERSION}


def v3_document(path: str) -> Document:
    """`GET /openapi/v3/PATH`. Raises KeyError for a path that is not in the index."""
    group, version = _parse_path(path)
    if (group, version) not in groups.resources():
        raise KeyError(path)
    served = [k for k in _SERVED_KINDS if (k.group, k.version) == (group, version)]
    names = [*(kind.name for kind in served), *groups.REVIEWS.get((group, version), ())]
    schemas = _component_schemas([_type_of(group, version, name) for name in names], _V3)
    paths = {path: item for kind in served for path, item in _kind_paths(kind, _V3).items()}
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def v2_document() -> Document:
    """`GET /openapi/v2`"""
    definitions = _component_schemas([_type_of(k.group, k.version, k.name) for k in _SERVED_KINDS], _V2)
    paths = {path: item for kind in _SERVED_KINDS for path, item in _kind_paths(kind, _V2).items()}
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _type_of(group: str, version: str, kind: str) -> tuple[str, str, str, str]:
    """Group, version, kind, and the name of the type."""
    return group, version, kind, types.type_name(group, version, kind)


def component_name(group: str, version: str, kind: str) -> str:
    """The name of the kind's schema in the documents."""
    name = types.type_name(group, version, kind)
    if "/" not in name:
        return name
    return ".".join([*reversed(group.split(".")), version, kind])


def _component_schemas(roots: list[tuple[str, str, str, str]], prefix: str) -> Document:
    """The schemas of the roots and of all types that they refer to."""
    schemas: Document = {}
    pending: list[str] = []
    for group, version, kind, name in roots:
        body = _expand_schema(types.schema(name), prefix, pending)
        body["x-kubernetes-group-version-kind"] = [{"group": group, "kind": kind, "version": version}]
        if kind in descriptions().kinds:
            body["description"] = descriptions().kinds[kind]
        component = component_name(group, version, kind)
        schemas[component] = body
        if (group, version, kind) in _LISTED_KINDS:
            gvk = [{"group": group, "kind": f"{kind}List", "version": version}]
            schemas[f"{component}List"] = {**_list_schema(component, prefix), "x-kubernetes-group-version-kind": gvk}
            pending.append(_LIST_META)
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = _expand_schema(types.schema(name), prefix, pending)
    return dict(sorted(schemas.items()))


def _list_schema(name: str, prefix: str) -> Document:
    """The schema of a kind's list, with which clients validate the items."""
    fields = {
        "apiVersion": {"type": "string"},
        "items": {"type": "array", "items": _reference(name, prefix)},
        "kind": {"type": "string"},
        "metadata": _reference(_LIST_META, prefix),
    }
    properties = {key: _with_description(key, node) for key, node in fields.items()}
    return {"type": "object", "required": ["items"], "properties": properties}


def _reference(name: str, prefix: str) -> Document:
    """A reference; in version 3 wrapped in `allOf`, because nothing may be beside a `$ref`."""
    return {"allOf": [{"$ref": prefix + name}]} if prefix == _V3 else {"$ref": prefix + name}


def _expand_schema(node: Any, prefix: str, pending: list[str]) -> Any:
    """A schema with full references; shared parts of CRD schemas (`crd.…`) are inlined."""
    if isinstance(node, list):
        return [_expand_schema(n, prefix, pending) for n in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref.startswith("crd."):
            return _expand_schema(types.schema(ref), prefix, pending)
        pending.append(ref)
        rest = {k: v for k, v in node.items() if k != "$ref"}
        return {**rest, **_reference(ref, prefix)} if prefix == _V3 else _reference(ref, prefix)
    if prefix == _V2:
        node = _as_v2_schema(node)
    expanded = {
        k: _expand_schema(v, prefix, pending) if k not in ("required", "enum") else v
        for k, v in node.items()
        if k not in structs.KEYS
    }
    if isinstance(expanded.get("properties"), dict):
        expanded["properties"] = {k: _with_description(k, v) for k, v in expanded["properties"].items()}
    return expanded


_NEW_IN_V3 = ("anyOf", "oneOf", "not", "nullable")


def _as_v2_schema(node: Document) -> Document:
    """A schema in version 2, which has no `oneOf`: int-or-string becomes a string."""
    if "oneOf" in node and "format" in node:
        return {"type": "string", "format": node["format"]}
    if "oneOf" in node:
        return {"type": "string"}
    fields = {k: v for k, v in node.items() if k not in _NEW_IN_V3}
    if node.get("x-kubernetes-preserve-unknown-fields"):  # version 2 clients would reject fields that are not declared
        fields = {k: v for k, v in fields.items() if k not in ("properties", "items")}
    return fields


def _with_description(name: str, node: Any) -> Any:
    text = descriptions().fields.get(name)
    return {"description": text, **node} if text and isinstance(node, dict) else node


# ---------------------------------------------------------------- paths


_BOOLEANS = frozenset({"allowWatchBookmarks", "force", "orphanDependents", "sendInitialEvents", "watch"})
_INTEGERS = frozenset({"gracePeriodSeconds", "limit", "timeoutSeconds"})


def _parameter_schema(name: str, where: str, prefix: str) -> Document:
    kind = "boolean" if name in _BOOLEANS else "integer" if name in _INTEGERS else "string"
    typed = {"schema": {"type": kind, "uniqueItems": True}} if prefix == _V3 else {"type": kind, "uniqueItems": True}
    return {"name": name, "in": where, **typed, **({"required": True} if where == "path" else {})}


_COLLECTION_OPERATIONS = {
    "get": ("list", requests.LIST_PARAMETERS),
    "post": ("post", requests.WRITE_PARAMETERS),
    "delete": ("deletecollection", requests.DELETE_PARAMETERS),
}
_OBJECT_OPERATIONS = {
    "get": ("get", requests.READ_PARAMETERS),
    "put": ("put", requests.WRITE_PARAMETERS),
    "patch": ("patch", requests.PATCH_PARAMETERS),
    "delete": ("delete", requests.DELETE_PARAMETERS),
}
_SUBRESOURCE_OPERATIONS = {key: _OBJECT_OPERATIONS[key] for key in ("get", "put", "patch")}


def _kind_paths(kind: Kind, prefix: str) -> Document:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    space = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    paths = {f"{space}/{kind.plural}": _path_item(kind, _COLLECTION_OPERATIONS, prefix)}
    paths[f"{space}/{kind.plural}/{{name}}"] = _path_item(kind, _OBJECT_OPERATIONS, prefix)
    if kind.namespaced:
        paths[f"{root}/{kind.plural}"] = _path_item(
            kind, {"get": _COLLECTION_OPERATIONS["get"]}, prefix, all_namespaces=True
        )
    for sub in sorted(kind.subresources & {"status", "scale"}):
        paths[f"{space}/{kind.plural}/{{name}}/{sub}"] = _path_item(kind, _SUBRESOURCE_OPERATIONS, prefix)
    return paths


def _path_item(kind: Kind, operations: dict[str, Any], prefix: str, all_namespaces: bool = False) -> Document:
    gvk = {"group": kind.group, "kind": kind.name, "version": kind.version}
    ref = {"$ref": prefix + component_name(kind.group, kind.version, kind.name)}
    item: Document = {}
    for verb, (action, parameters) in operations.items():
        query_parameters = [_parameter_schema(name, "query", prefix) for name in sorted(parameters)]
        body: Document = {"schema": ref} if prefix == _V2 else {"content": {"application/json": {"schema": ref}}}
        item[verb] = {
            "operationId": f"{action}{'' if kind.namespaced and not all_namespaces else 'All'}{kind.name}",
            "parameters": query_parameters,
            "responses": {"200": {"description": "OK", **body}, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }
    if kind.namespaced and not all_namespaces:
        item["parameters"] = [_parameter_schema("namespace", "path", prefix)]
    return item


def inline_references(node: Any) -> Any:
    """A schema with all references inlined, as in CRDs; metadata becomes a plain object."""
    if isinstance(node, list):
        return [inline_references(n) for n in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str):
        return {"type": "object"} if ref == types.META else inline_references(types.schema(ref))
    return {k: inline_references(v) for k, v in node.items()}
