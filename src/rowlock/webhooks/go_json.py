"""JSON as Go marshals a struct: fields in the struct's order, including empty ones without `omitempty`.

Controllers' webhooks quote values in their refusals as Go's encoder writes them.
"""

from __future__ import annotations

import json
from typing import Any

from rowlock.apiserver.schema import structs, types
from rowlock.apiserver.schema.types import Schema
from rowlock.quantity import canonicalize

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
