"""The kinds of jobs for clusters without Kubeflow's operator: the same names, with a looser schema than its own.

Kubeflow's CRDs replace them when its operator is installed later; existing jobs stay valid. For jobs that its webhooks would refuse,
rowlock's operators write an Event.
"""

from __future__ import annotations

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kube.install.crd import OPEN, crd_object
from rowlock.objects import Object
from rowlock.training.frameworks.registry import FRAMEWORKS

_REPLICA: Object = {
    **OPEN,
    "properties": {
        "replicas": {"type": "integer", "format": "int32"},
        "restartPolicy": {"type": "string"},
        "template": {**OPEN, "properties": {"metadata": OPEN, "spec": OPEN}},
    },
}
_RUN_POLICY: Object = {
    **OPEN,
    "properties": {
        "backoffLimit": {"type": "integer", "format": "int32"},
        "activeDeadlineSeconds": {"type": "integer", "format": "int64"},
        "ttlSecondsAfterFinished": {"type": "integer", "format": "int32"},
        "cleanPodPolicy": {"type": "string"},
        "managedBy": {"type": "string"},
        "suspend": {"type": "boolean"},
    },
}
_COLUMNS: list[Object] = [
    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_SCALE: Object = {
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
    spec = {**OPEN, "required": [field], "properties": {field: replicas, "runPolicy": _RUN_POLICY}}
    scale = {"scale": _SCALE} if kind is kinds.PYTORCHJOB else {}
    schema = {"properties": {"spec": spec, "status": OPEN}}
    return crd_object(kind, schema, additionalPrinterColumns=_COLUMNS, subresources={"status": {}, **scale})
