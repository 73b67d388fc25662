"""What can be read but not made: definitions of custom kinds, as a real cluster would list them."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.types import Send

from rowlock import kinds
from rowlock.apiserver.discovery import openapi
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, path_not_found
from rowlock.apiserver.http.responses import answer_object
from rowlock.apiserver.schema import types
from rowlock.errors import Unsupported, not_found
from rowlock.kinds import Kind
from rowlock.objects import Object

GROUP = "apiextensions.k8s.io"
_PLURAL = "customresourcedefinitions"
_EPOCH = "1970-01-01T00:00:00Z"


@cache
def all_crds() -> dict[str, Object]:
    return {k.resource: _crd(k) for k in sorted(kinds.KINDS, key=lambda k: k.resource) if k.custom}


def _crd(kind: Kind) -> Object:
    names: dict[str, Any] = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.name,
        "listKind": f"{kind.name}List",
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    schema = openapi.inline_references(types.schema_of(kind))
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": kind.group,
        "names": names,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "versions": [{**version, "subresources": {"status": {}}}],
        "conversion": {"strategy": "None"},
    }
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
        {
            "type": "Established",
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        },
    ]
    status = {"conditions": conditions, "acceptedNames": names, "storedVersions": [kind.version]}
    meta = {"name": kind.resource, "uid": f"crd-{kind.resource}", "creationTimestamp": _EPOCH, "resourceVersion": "1"}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


async def serve_crds(call: Call, send: Send, rest: list[str]) -> None:
    if rest[0] != _PLURAL or len(rest) > 2:
        raise path_not_found()
    if call.method != "GET" or call.flag("watch"):
        raise Unsupported("rowlock has a fixed set of kinds: definitions can only be read")
    call.check_query(requests.LIST_PARAMETERS)
    crds = all_crds()
    if len(rest) == 2 and rest[1] not in crds:
        raise not_found(_PLURAL, rest[1], GROUP)
    selected = [crds[rest[1]]] if len(rest) == 2 else list(crds.values())
    if requests.negotiate_form(call.header(b"accept")).view == "Table":
        return await answer_object(send, _table(selected))
    if len(rest) == 2:
        return await answer_object(send, selected[0])
    head = {"kind": "CustomResourceDefinitionList", "apiVersion": f"{GROUP}/v1", "metadata": {"resourceVersion": "1"}}
    await answer_object(send, {**head, "items": selected})


def _table(crds: list[Object]) -> Object:
    columns = [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
    ]
    rows = [
        {
            "cells": [o["metadata"]["name"], _EPOCH],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]},
        }
        for o in crds
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "1"},
        "columnDefinitions": columns,
        "rows": rows,
    }
