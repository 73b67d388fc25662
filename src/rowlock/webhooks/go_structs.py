"""Values as Go's encoder writes them, and Go's error for a value that does not fit the struct of a custom kind: a controller's webhook
fails with it before any schema check.

Types come from the CRD's schema, names of structs from the table here. Everything below a pod template is left to the schema. JSON has
the fields in the struct's order, including empty ones without `omitempty`.
"""

from __future__ import annotations

import json
from typing import Any

from rowlock import kinds
from rowlock.apiserver.schema import json_errors, structs, types
from rowlock.apiserver.schema.types import Schema
from rowlock.kinds import Kind
from rowlock.quantity import canonicalize

_STRUCTS: dict[Kind, dict[str, str]] = {
    kinds.TRAIN_JOB: {
        "spec": "TrainJobSpec", "spec.runtimeRef": "RuntimeRef", "spec.trainer": "Trainer", "spec.initializer": "Initializer",
        "spec.initializer.dataset": "DatasetInitializer", "spec.initializer.model": "ModelInitializer",
        "spec.runtimePatches": "RuntimePatch",
    },
    kinds.JOB_SET: {
        "spec": "JobSetSpec", "spec.replicatedJobs": "ReplicatedJob", "spec.network": "Network",
        "spec.successPolicy": "SuccessPolicy", "spec.failurePolicy": "FailurePolicy",
        "spec.failurePolicy.rules": "FailurePolicyRule", "spec.startupPolicy": "StartupPolicy",
        "spec.coordinator": "Coordinator", "spec.replicatedJobs.dependsOn": "DependsOn",
        "spec.replicatedJobs.template": "JobTemplateSpec", "spec.replicatedJobs.template.spec": "JobSpec",
    },
}  # fmt: skip
"""Names of Go's structs by their path in the object, without list indexes."""


def problem(kind: Kind, spec: Any) -> str:
    """Go's error message for the first value of the wrong type; "" if all fit."""
    node = types.field_schema(types.schema_of(kind), "spec")
    if node is None or not isinstance(spec, dict):
        return ""
    return _problem(spec, node, "spec", _STRUCTS[kind])


def is_misshapen(kind: Kind, obj: Any) -> bool:
    """Whether a value in the spec should be an object or a list by the schema and is not. Schema validation reports it."""
    return _is_misshapen(obj.get("spec"), types.field_schema(types.schema_of(kind), "spec") or types.ANYTHING)


def _is_misshapen(value: Any, node: Schema) -> bool:
    expected = node.get("type")
    if expected == "object" and value is not None:
        if not isinstance(value, dict):
            return True
        children = ((element, types.field_schema(node, key)) for key, element in value.items())
        return any(_is_misshapen(element, child) for element, child in children if child is not None)
    if expected == "array" and value is not None:
        items = types.item_schema(node)
        return not isinstance(value, list) or any(
            _is_misshapen(part, items) or (part is None and items.get("type") == "object") for part in value
        )
    return False


def _problem(value: dict[str, Any], node: Schema, path: str, structs: dict[str, str]) -> str:
    for key, element in value.items():
        child, where = types.field_schema(node, key), f"{path}.{key}"
        if child is None:
            continue
        if wrong := _wrong_type(element, child):
            return f"json: cannot unmarshal {wrong[0]} into Go struct field {structs[path]}.{where} of type {wrong[1]}"
        if where not in structs:
            continue
        inner, parts = (types.item_schema(child), element) if isinstance(element, list) else (child, [element])
        for part in parts:
            if isinstance(part, dict) and (found := _problem(part, inner, where, structs)):
                return found
    return ""


def _wrong_type(value: Any, node: Schema) -> tuple[str, str] | None:
    """(JSON type found, Go type expected); None if the value fits or Go's type is a struct."""
    expected = node.get("type")
    if expected not in _GO or node.get("x-kubernetes-int-or-string") or value is None:
        return None
    go = node.get("format", "int32") if expected == "integer" else _GO[expected]
    if isinstance(value, _CLASSES[expected]) and (expected == "boolean" or not isinstance(value, bool)):
        return None
    found = json_errors.json_type(value)
    return (f"number {value}" if found == "number" and expected == "integer" else found, go)


_GO = {"integer": "", "string": "string", "boolean": "bool"}
_CLASSES: dict[str, type] = {"integer": int, "string": str, "boolean": bool}


_POD_SPEC = "io.k8s.api.core.v1.PodSpec"
_JOB_SPEC = (
    "parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy", "successPolicy", "backoffLimit",
    "backoffLimitPerIndex", "maxFailedIndexes", "selector", "manualSelector", "template", "ttlSecondsAfterFinished",
    "completionMode", "suspend", "podReplacementPolicy", "managedBy",
)  # fmt: skip
"""The order of the fields of Go's `JobSpec`."""


def encode(value: Any, type_name: str) -> str:
    """A value of a built-in type, or a list of such values, as Go's JSON."""
    node = types.schema(type_name)
    ordered = [_order_fields(one, node) for one in value] if isinstance(value, list) else _order_fields(value, node)
    return _compact(ordered)


def encode_replicated_jobs(jobs: Any) -> str:
    """`spec.replicatedJobs` of a JobSet."""
    return _compact([with_empty_structs(job) for job in jobs or ()])


def encode_plain(value: Any, *first: str) -> str:
    """JSON of a value, or a list of values, whose struct omits all empty fields. `first`: the names of its fields in Go's order."""
    if isinstance(value, list):
        return _compact([_put_first(one, first) for one in value])
    return _compact(_put_first(value, first))


def with_empty_structs(job: dict[str, Any]) -> dict[str, Any]:
    """A replicated job as a webhook in Go returns it: fields in the structs' order, with the empty structs that Go always writes."""
    template = job.get("template") or {}
    spec = template.get("spec") or {}
    pods = spec.get("template") or {}
    pod_spec = _order_fields({"containers": None, **(pods.get("spec") or {})}, types.schema(_POD_SPEC))
    job_spec = _put_first({**spec, "template": {"metadata": pods.get("metadata") or {}, "spec": pod_spec}}, _JOB_SPEC)
    whole = {**job, "template": {"metadata": template.get("metadata") or {}, "spec": job_spec}}
    found: dict[str, Any] = _put_first(whole, ("name", "groupName", "template", "replicas", "dependsOn"))
    return found


def _put_first(value: Any, first: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    return {**{key: value[key] for key in first if key in value}, **value}


def _order_fields(value: Any, node: Schema) -> Any:
    if node.get("$ref") == types.QUANTITY and isinstance(value, str | int | float) and not isinstance(value, bool):
        return canonicalize(value)
    node = types.resolve_ref(node)
    if isinstance(value, list):
        return [_order_fields(one, types.item_schema(node)) for one in value]
    if not isinstance(value, dict):
        return value
    declared = node.get("properties") or {}
    fields = structs.fields(node)
    if not fields:
        more = node.get("additionalProperties")
        return {key: _order_fields(one, more) if isinstance(more, dict) else one for key, one in sorted(value.items())}
    found = {}
    for key, about in fields.items():
        if key in value:
            found[key] = _order_fields(value[key], declared[key])
        elif about.always and structs.zero_value(declared[key]) == {}:
            found[key] = structs.zeros(types.schema(declared[key]["$ref"]))
    return {**found, **{key: one for key, one in value.items() if key not in found}}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
