"""The kinds of jobs for clusters without Kubeflow's operator: the same names, with a looser schema than its own.

Kubeflow's CRDs replace them when its operator is installed later; existing jobs stay valid. For jobs that its webhooks would refuse,
rowlock's operators write an Event.
"""

from __future__ import annotations

from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.training.frameworks.registry import FRAMEWORKS

_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_REPLICA: Object = {
    **_OPEN,
    "properties": {
        "replicas": {"type": "integer", "format": "int32"},
        "restartPolicy": {"type": "string"},
        "template": {**_OPEN, "properties": {"metadata": _OPEN, "spec": _OPEN}},
    },
}
_RUN_POLICY: Object = {
    **_OPEN,
    "properties": {
        "backoffLimit": {"type": "integer", "format": "int32"},
        "activeDeadlineSeconds": {"type": "integer", "format": "int64"},
        "ttlSecondsAfterFinished": {"type": "integer", "format": "int32"},
        "cleanPodPolicy": {"type": "string"},
        "managedBy": {"type": "string"},
        "suspend": {"type": "boolean"},
    },
}
_COLUMNS = [
    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_SCALE = {
    "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
    "statusReplicasPath": ".status.replicaStatuses.Worker.active",
    "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
}
"""An elastic PyTorchJob is scaled by a HorizontalPodAutoscaler."""


def job_crd_objects() -> list[Object]:
    """The CustomResourceDefinitions of the six kinds of jobs."""
    return [_crd_object(kind) for kind in kinds.JOBS]


def _crd_object(kind: Kind) -> Object:
    field = FRAMEWORKS[kind].replicas
    replicas = {"type": "object", "additionalProperties": _REPLICA}
    spec = {**_OPEN, "required": [field], "properties": {field: replicas, "runPolicy": _RUN_POLICY}}
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": _COLUMNS,
        "subresources": {"status": {}, **({"scale": _SCALE} if kind is kinds.PYTORCHJOB else {})},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": _OPEN}}},
    }
    names = {"kind": kind.name, "plural": kind.plural, "singular": kind.singular, "listKind": f"{kind.name}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": {"app.kubernetes.io/managed-by": "rowlock"}},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
