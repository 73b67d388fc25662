"""The kinds of JobSet and Kubeflow Trainer, for clusters that have neither: the same names, fields, defaults and rules.

Only pod templates are open: the API server checks them when a Job is created of them. So each definition is a few dozen KB instead of close to a
megabyte, which `kubectl apply` would refuse. Their own CRDs replace these when they are installed later; existing objects stay valid.
"""

from __future__ import annotations

from rowlock import kinds
from rowlock.apiserver.schema import types
from rowlock.kinds import Kind
from rowlock.kube.install.crd import OPEN, crd_object
from rowlock.objects import Object

_POD_TEMPLATE: Object = {**OPEN, "properties": {"metadata": OPEN, "spec": OPEN}}
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
    shown = {"additionalPrinterColumns": _COLUMNS[kind], "subresources": {"status": {}}} if kind in _COLUMNS else {}
    return crd_object(kind, {"properties": parts, **rules}, **shown)


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
