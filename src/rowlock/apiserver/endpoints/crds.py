"""CustomResourceDefinitions of the custom kinds, as a real cluster would list them; read-only."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from rowlock import kinds
from rowlock.apiserver.discovery import openapi
from rowlock.apiserver.discovery.computed_kinds import DEFINITIONS
from rowlock.apiserver.schema import types
from rowlock.kinds import Kind
from rowlock.objects import Object

_EPOCH = "1970-01-01T00:00:00Z"
_ESTABLISHED = json.loads(resources.files(__package__).joinpath("established_conditions.json").read_bytes())
"""The conditions of every definition: NamesAccepted and Established."""


@cache
def all_crds() -> list[Object]:
    return [_crd(kind) for kind in sorted(kinds.KINDS, key=lambda kind: kind.resource) if kind.custom]


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
    status = {"conditions": _ESTABLISHED, "acceptedNames": names, "storedVersions": [kind.version]}
    meta = {"name": kind.resource, "uid": f"crd-{kind.resource}", "creationTimestamp": _EPOCH, "resourceVersion": "1"}
    return {
        "apiVersion": DEFINITIONS.kind.api_version,
        "kind": DEFINITIONS.kind.name,
        "metadata": meta,
        "spec": spec,
        "status": status,
    }
