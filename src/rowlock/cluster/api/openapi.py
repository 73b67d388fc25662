"""OpenAPI v3 and v2 from the table of types: enough for `kubectl explain`, `apply`, validation and generated clients.

The table has no prose; the sentences are our own (`TEXTS` here for kinds, `explanations` for fields). Each document
is made when it is first asked for. Pure.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import msgspec

from rowlock import __version__, kinds
from rowlock.cluster.api import discovery, explanations, gnostic, types
from rowlock.kinds import Kind

Document = dict[str, Any]

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_V3, _V2 = "#/components/schemas/", "#/definitions/"
_REVIEWS = {
    "authorization.k8s.io/v1": ("SelfSubjectAccessReview", "SubjectAccessReview", "SelfSubjectRulesReview"),
    "authentication.k8s.io/v1": ("SelfSubjectReview", "TokenReview"),
}

TEXTS = {
    "PyTorchJob": "A PyTorch training job: one Master and any number of Workers, started together.",
    "TFJob": "A TensorFlow training job: parameter servers, workers, a chief and an evaluator.",
    "MPIJob": "An MPI training job: a launcher that runs mpirun over its workers.",
    "XGBoostJob": "An XGBoost training job: one Master and any number of Workers.",
    "PaddleJob": "A PaddlePaddle training job: Masters and Workers.",
    "JAXJob": "A JAX training job: Workers.",
    "Queue": "A share of the cluster: quota, limit and weight per resource; queues form a tree.",
    "PodGroup": "A gang: pods that start together or not at all.",
}


def group_versions() -> list[str]:
    """The paths of the index: `api/v1`, `apis/kubeflow.org/v1`, …"""
    return [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in discovery.resources()]


@cache
def encoded(path: str) -> bytes:
    """`GET /openapi/v3/PATH`, or for "v2" `GET /openapi/v2`, as JSON. Raises KeyError."""
    return msgspec.json.encode(v2() if path == "v2" else v3(path))


@cache
def index() -> Document:
    """`GET /openapi/v3`"""
    paths = {}
    for path in group_versions():
        digest = hashlib.sha256(encoded(path)).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _of(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])


_SERVED = (*kinds.KINDS, kinds.NEWER_EVENT)
_LISTED = frozenset((k.group, k.version, k.name) for k in _SERVED)


@cache
def v2_protobuf() -> bytes:
    """`GET /openapi/v2` for clients that want protobuf, as kubectl does."""
    return gnostic.document(v2())


def v3(path: str) -> Document:
    """`GET /openapi/v3/PATH`. Raises KeyError for a path that is not in the index."""
    group, version = _of(path)
    if (group, version) not in discovery.resources():
        raise KeyError(path)
    served = [k for k in _SERVED if (k.group, k.version) == (group, version)]
    schemas = _components([_type_of(k.group, k.version, k.name) for k in served] + _reviews(path), _V3)
    paths: Document = {}
    for kind in served:
        paths.update(_paths(kind, _V3))
    info = {"title": "rowlock", "version": f"v1.34.4+rowlock-{__version__}"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def v2() -> Document:
    """`GET /openapi/v2`"""
    definitions = _components([_type_of(k.group, k.version, k.name) for k in _SERVED], _V2)
    paths: Document = {}
    for kind in _SERVED:
        paths.update(_paths(kind, _V2))
    info = {"title": "rowlock", "version": f"v1.34.4+rowlock-{__version__}"}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def _reviews(path: str) -> list[tuple[str, str, str, str]]:
    group, _, version = path.removeprefix("apis/").partition("/")
    return [_type_of(group, version, name) for name in _REVIEWS.get(f"{group}/{version}", ())]


def _type_of(group: str, version: str, kind: str) -> tuple[str, str, str, str]:
    """Group, version, kind, and the name of the type."""
    return group, version, kind, types.name_of(group, version, kind)


def component(group: str, version: str, kind: str) -> str:
    """What the kind's schema is called in the documents."""
    name = types.name_of(group, version, kind)
    if "/" not in name:
        return name
    return ".".join([*reversed(group.split(".")), version, kind])


def _components(roots: list[tuple[str, str, str, str]], prefix: str) -> Document:
    """The schemas of the roots and of all types that they name."""
    found: Document = {}
    todo: list[str] = []
    for group, version, kind, name in roots:
        body = _written(types.schema(name), prefix, todo)
        body["x-kubernetes-group-version-kind"] = [{"group": group, "kind": kind, "version": version}]
        if kind in TEXTS:
            body["description"] = TEXTS[kind]
        own = component(group, version, kind)
        found[own] = body
        if (group, version, kind) in _LISTED:
            gvk = [{"group": group, "kind": f"{kind}List", "version": version}]
            found[f"{own}List"] = {**_list_of(own, prefix), "x-kubernetes-group-version-kind": gvk}
            todo.append(_LIST_META)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = _written(types.schema(name), prefix, todo)
    return dict(sorted(found.items()))


def _list_of(name: str, prefix: str) -> Document:
    """The schema of a kind's list: clients validate what is inside one by it."""
    fields = {
        "apiVersion": {"type": "string"},
        "items": {"type": "array", "items": _reference(name, prefix)},
        "kind": {"type": "string"},
        "metadata": _reference(_LIST_META, prefix),
    }
    explained = {key: _explained(key, node) for key, node in fields.items()}
    return {"type": "object", "required": ["items"], "properties": explained}


def _reference(name: str, prefix: str) -> Document:
    """Version 3 wraps a reference, so that something may stand beside it."""
    return {"allOf": [{"$ref": prefix + name}]} if prefix == _V3 else {"$ref": prefix + name}


def _written(node: Any, prefix: str, todo: list[str]) -> Any:
    """A schema with full references; what the CRDs share among themselves is written out again."""
    if isinstance(node, list):
        return [_written(n, prefix, todo) for n in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref.startswith("crd."):
            return _written(types.schema(ref), prefix, todo)
        todo.append(ref)
        rest = {k: v for k, v in node.items() if k != "$ref"}
        return {**rest, **_reference(ref, prefix)} if prefix == _V3 else _reference(ref, prefix)
    if prefix == _V2:
        node = _older(node)
    found = {k: _written(v, prefix, todo) if k not in ("required", "enum") else v for k, v in node.items()}
    if isinstance(found.get("properties"), dict):
        found["properties"] = {k: _explained(k, v) for k, v in found["properties"].items()}
    return found


_NEW_IN_V3 = ("anyOf", "oneOf", "not", "nullable")


def _older(node: Document) -> Document:
    """A schema as version 2 can say it: what may be one of two types has none there, or is text."""
    if "oneOf" in node and "format" in node:
        return {"type": "string", "format": node["format"]}
    if "oneOf" in node:
        return {"type": "string"}
    left = {k: v for k, v in node.items() if k not in _NEW_IN_V3}
    if node.get("x-kubernetes-preserve-unknown-fields"):  # to a client of version 2, declared fields are all there are
        left = {k: v for k, v in left.items() if k not in ("properties", "items")}
    return left


def _explained(name: str, node: Any) -> Any:
    text = explanations.TEXTS.get(name)
    return {"description": text, **node} if text and isinstance(node, dict) else node


# ---------------------------------------------------------------- paths


def _parameter(name: str, kind: str, where: str, prefix: str) -> Document:
    typed = {"schema": {"type": kind, "uniqueItems": True}} if prefix == _V3 else {"type": kind, "uniqueItems": True}
    return {"name": name, "in": where, **typed, **({"required": True} if where == "path" else {})}


_READS = (("pretty", "string"), ("resourceVersion", "string"))
_LISTS = (
    ("allowWatchBookmarks", "boolean"), ("continue", "string"), ("fieldSelector", "string"),
    ("labelSelector", "string"), ("limit", "integer"), ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"), ("timeoutSeconds", "integer"), ("watch", "boolean"),
)  # fmt: skip
_WRITES = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string"))
_PATCH = (*_WRITES, ("force", "boolean"))
_DELETES = (("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string"))

_COLLECTION = {"get": ("list", _LISTS), "post": ("post", _WRITES), "delete": ("deletecollection", _DELETES)}
_OBJECT = {
    "get": ("get", _READS),
    "put": ("put", _WRITES),
    "patch": ("patch", _PATCH),
    "delete": ("delete", _DELETES),
}
_PART = {key: _OBJECT[key] for key in ("get", "put", "patch")}


def _paths(kind: Kind, prefix: str) -> Document:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    space = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    found = {f"{space}/{kind.plural}": _item(kind, _COLLECTION, prefix)}
    found[f"{space}/{kind.plural}/{{name}}"] = _item(kind, _OBJECT, prefix)
    if kind.namespaced:
        found[f"{root}/{kind.plural}"] = _item(kind, {"get": _COLLECTION["get"]}, prefix, everywhere=True)
    for sub in sorted(kind.subresources & {"status", "scale"}):
        found[f"{space}/{kind.plural}/{{name}}/{sub}"] = _item(kind, _PART, prefix)
    return found


def _item(kind: Kind, operations: dict[str, Any], prefix: str, everywhere: bool = False) -> Document:
    gvk = {"group": kind.group, "kind": kind.name, "version": kind.version}
    ref = {"$ref": prefix + component(kind.group, kind.version, kind.name)}
    item: Document = {}
    for verb, (action, parameters) in operations.items():
        given = [_parameter(name, type_, "query", prefix) for name, type_ in parameters]
        body: Document = {"schema": ref} if prefix == _V2 else {"content": {"application/json": {"schema": ref}}}
        item[verb] = {
            "operationId": f"{action}{'' if kind.namespaced and not everywhere else 'All'}{kind.name}",
            "parameters": given,
            "responses": {"200": {"description": "OK", **body}, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }
    if kind.namespaced and not everywhere:
        item["parameters"] = [_parameter("namespace", "string", "path", prefix)]
    return item


def inlined(node: Any) -> Any:
    """A schema without references, as CRDs have theirs; metadata stays an object."""
    if isinstance(node, list):
        return [inlined(n) for n in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if isinstance(ref, str):
        return {"type": "object"} if ref == types.META else inlined(types.schema(ref))
    return {k: inlined(v) for k, v in node.items()}
