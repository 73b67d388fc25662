"""A CustomResourceDefinition of one version, for the kinds that rowlock can bring to a cluster."""

from __future__ import annotations

from rowlock.kinds import Kind
from rowlock.objects import Object

OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object with any fields."""


def crd_object(kind: Kind, schema: Object, **more: object) -> Object:
    """The definition of a kind. `schema`: that of its objects. `more`: further fields of the version."""
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        **more,
        "schema": {"openAPIV3Schema": {"type": "object", **schema}},
    }
    names = {"kind": kind.name, "plural": kind.plural, "singular": kind.singular, "listKind": f"{kind.name}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": {"app.kubernetes.io/managed-by": "rowlock"}},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }
