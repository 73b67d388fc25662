"""The kinds of JobSet and Kubeflow Trainer, for clusters that have neither: the same names, fields, defaults and rules.

Only pod templates are open: the API server checks them when a Job is created of them. So each definition is a few dozen KB instead of close to a
megabyte, which `kubectl apply` would refuse. Their own CRDs replace these when they are installed later; existing objects stay valid.
"""

from __future__ import annotations

from typing import Any

from rowlock import kinds
from rowlock.apiserver.schema import types
from rowlock.kinds import Kind
from rowlock.objects import Object

_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_POD_TEMPLATE: Object = {**_OPEN, "properties": {"metadata": _OPEN, "spec": _OPEN}}
_POD_FIELDS = {"containers", "nodeName"}
"""Fields of a whole pod spec. Patches of a runtime have few of a pod's fields and stay closed."""
# The webhook of JobSet gives rules of a failure policy their names, and there is none here: our operator does it (`default_jobset`).
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COLUMNS: dict[Kind, list[Object]] = {
    kinds.JOB_SET: [
        {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
        {"name": "Restarts", "type": "string", "jsonPath": ".status.restarts"},
        {"name": "Completed", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Completed")].status'},
        {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"},
        _AGE,
    ],
    kinds.TRAIN_JOB: [{"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}, _AGE],
}


def trainer_crd_objects() -> list[Object]:
    """The CustomResourceDefinitions of JobSet, TrainJob, TrainingRuntime and ClusterTrainingRuntime."""
    return [_crd_object(kind) for kind in kinds.TRAINER]


def _crd_object(kind: Kind) -> Object:
    declared = types.schema_of(kind)
    parts = {field: _structural(node) for field, node in declared["properties"].items() if field in ("spec", "status")}
    if kind is kinds.JOB_SET:
        parts["spec"]["properties"]["failurePolicy"]["properties"]["rules"]["items"]["required"] = ["action"]
    rules = {key: declared[key] for key in ("x-kubernetes-validations",) if key in declared}
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": parts, **rules}},
    }
    if kind in _COLUMNS:
        version |= {"additionalPrinterColumns": _COLUMNS[kind], "subresources": {"status": {}}}
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


def _structural(node: types.Schema) -> Object:
    """A schema of the table of types without references, and with open pod templates."""
    node = types.resolve_ref(node)
    fields = node.get("properties") or {}
    if _POD_FIELDS <= (types.resolve_ref(fields.get("spec") or {}).get("properties") or {}).keys():
        return _POD_TEMPLATE
    return {
        **node,
        **({"properties": {field: _structural(child) for field, child in fields.items()}} if fields else {}),
        **{key: _structural(node[key]) for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)},
    }
