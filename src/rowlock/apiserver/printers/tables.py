"""`kubectl get`'s columns: the Table that the server makes of objects, defined by `columns.txt`.

A column shows a field by its path, or a cell that a function of its resource computes. Names, types
and contents are the real API server's. Pure: the time is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from rowlock import objects
from rowlock.apiserver.printers.pod_columns import pod_cells
from rowlock.kinds import JOB_SET, JOBS, TRAIN_JOB, Kind
from rowlock.objects import Object
from rowlock.quantity import human_duration, parse

Cells = dict[str, Any]
"""The computed cells of an object, by column name."""
Include = Literal["None", "Metadata", "Object"]


class _Column(NamedTuple):
    definition: dict[str, Any]
    cell: Callable[[Object, float], Any] | None
    """Returns the cell of an object at a time; None if the resource's function computes it."""


@cache
def _columns() -> dict[str, list[_Column]]:
    """The columns of each resource; `*` has those for all others."""
    text = resources.files("rowlock.apiserver.printers").joinpath("columns.txt").read_text("utf-8")
    found: dict[str, list[_Column]] = {}
    columns: list[_Column] = []
    for line in text.splitlines():
        if line.startswith("  "):
            columns.append(_parse_column(*re.split("  +", line.strip())))
        elif line and not line.startswith("#"):
            columns = []
            found.update(dict.fromkeys(line.split(", "), columns))
    return found


def _parse_column(header: str, source: str = "", otherwise: str = "") -> _Column:
    name, _, kind = header.removeprefix("+").partition(":")
    definition = {
        "name": name,
        "type": kind or "string",
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": 1 if header.startswith("+") else 0,
    }
    return _Column(definition, _parse_source(source, _LITERALS.get(otherwise, otherwise)) if source else None)


_LITERALS = {"null": None, "0": 0, "false": False}


def _parse_source(source: str, otherwise: Any) -> Callable[[Object, float], Any]:
    if source == "age":
        return lambda obj, now: time_since(objects.meta(obj).get("creationTimestamp"), now)
    if source.startswith("#"):
        return lambda obj, _: sum(len(obj.get(field) or ()) for field in source[1:].split(","))

    def field(obj: Object, _: float) -> Any:
        value = objects.dig(obj, source)
        return otherwise if value is None or (value == "" and otherwise) else value

    return field


def scale_table(job: Object, scale: Object, now: float, *, include: Include = "Metadata") -> Object:
    """The Table for `kubectl get --subresource=scale`: desired and available replicas."""
    result = _table("scales", [scale], now, include)
    return {**result, "metadata": {"resourceVersion": objects.meta(job).get("resourceVersion", "")}}


def table(kind: Kind, objs: Iterable[Object], now: float, *, include: Include = "Metadata") -> Object:
    """A `meta.k8s.io/v1` Table of objects of one kind; the caller adds list metadata."""
    return _table(kind.resource, objs, now, include)


def _table(resource: str, objs: Iterable[Object], now: float, include: Include) -> Object:
    columns, compute = _columns().get(resource) or _columns()["*"], _COMPUTED.get(resource)
    rows = []
    for obj in objs:
        computed = compute(obj, now) if compute else {}
        cells = [computed[definition["name"]] if cell is None else cell(obj, now) for definition, cell in columns]
        row: dict[str, Any] = {"cells": cells}
        if include != "None":
            row["object"] = obj if include == "Object" else partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [column.definition for column in columns],
        "rows": rows,
    }


def partial_metadata(obj: Object) -> Object:
    """The object as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": objects.meta(obj)}


# ---------------------------------------------------------------- cells that are computed


def _job_cells(job: Object, _: float) -> Cells:
    conditions = objects.dig(job, "status.conditions") or []
    return {"State": conditions[-1].get("type") if conditions else None}


def _jobset_cells(jobset: Object, _: float) -> Cells:
    """Columns of type string: numbers and booleans as text, None when the field is missing."""
    completed, suspended = objects.condition(jobset, "Completed") or {}, objects.dig(jobset, "spec.suspend")
    restarts = objects.dig(jobset, "status.restarts")
    return {
        "Restarts": None if restarts is None else str(restarts),
        "Completed": completed.get("status"),
        "Suspended": None if suspended is None else str(suspended).lower(),
    }


def _service_cells(service: Object, _: float) -> Cells:
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    ports = (
        f"{p.get('port')}{':' if p.get('nodePort') else ''}{p.get('nodePort') or ''}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or ()
    )
    return {
        "External-IP": _external_address(service),
        "Port(s)": ",".join(ports) or "<none>",
        "Selector": ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or "<none>",
    }


def _external_address(service: Object) -> str:
    """The EXTERNAL-IP column of a Service."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or "<none>")
    addresses = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = objects.dig(service, "status.loadBalancer.ingress") or ()
        given = [str(point.get("ip") or point.get("hostname")) for point in ingress]
        return ",".join([*given, *addresses]) or "<pending>"
    return ",".join(addresses) or "<none>"


def _endpoints_cells(endpoints: Object, _: float) -> Cells:
    addresses = [
        f"{address['ip']}:{port['port']}"
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return {"Endpoints": _first_three(addresses, "<none>")}


def _slice_cells(endpoint_slice: Object, _: float) -> Cells:
    ports = [str(port["port"]) for port in endpoint_slice.get("ports") or ()]
    addresses = [address for point in endpoint_slice.get("endpoints") or () for address in point["addresses"]]
    return {"Ports": _first_three(ports, "<unset>"), "Endpoints": _first_three(addresses, "<unset>")}


def _first_three(names: list[str], nothing: str) -> str:
    return ",".join(names[:3]) + (f" + {len(names) - 3} more..." if len(names) > 3 else "") or nothing


def _event_cells(event: Object, now: float) -> Cells:
    involved, source = event.get("involvedObject") or {}, event.get("source") or {}
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return {
        "Last Seen": time_since(last, now),
        "Object": f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        "Source": f"{component}, {host}" if host else component,
        "Message": str(event.get("message", "")).strip(),
        "First Seen": time_since(first, now),
        "Count": series.get("count") or event.get("count") or 1,
    }


def _node_cells(node: Object, _: float) -> Cells:
    ready, labels = objects.condition(node, "Ready"), objects.labels(node)
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    addresses = {a.get("type"): a.get("address") for a in reversed(objects.dig(node, "status.addresses", ()))}
    prefix = "node-role.kubernetes.io/"
    roles = [key.removeprefix(prefix) for key in labels if key.startswith(prefix)]
    roles += [labels["kubernetes.io/role"]] if labels.get("kubernetes.io/role") else []
    return {
        "Status": f"{status},SchedulingDisabled" if objects.dig(node, "spec.unschedulable") else status,
        "Roles": ",".join(sorted(roles)) or "<none>",
        "Internal-IP": addresses.get("InternalIP") or "<none>",
        "External-IP": addresses.get("ExternalIP") or "<none>",
    }


_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""The deprecated annotation with a claim's storage class, which still takes precedence."""
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _claim_cells(claim: Object, _: float) -> Cells:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    capacity, modes = "", ""
    if spec.get("volumeName"):
        modes = ",".join(_MODES.get(m, m) for m in status.get("accessModes") or ())
        capacity = str((status.get("capacity") or {}).get("storage", "0"))
    return {
        "Status": "Terminating" if objects.is_deleting(claim) else status.get("phase", ""),
        "Capacity": capacity,
        "Access Modes": modes,
        "StorageClass": objects.annotations(claim).get(_STORAGE_CLASS) or spec.get("storageClassName", ""),
    }


def _quota_cells(quota: Object, _: float) -> Cells:
    hard, used = objects.dig(quota, "status.hard", {}), objects.dig(quota, "status.used", {})
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    return {
        "Request": ", ".join(text for name, text in texts.items() if not name.startswith("limits.")),
        "Limit": ", ".join(text for name, text in texts.items() if name.startswith("limits.")),
    }


def _role_binding_cells(binding: Object, _: float) -> Cells:
    ref, names = binding.get("roleRef") or {}, dict[str, list[str]]()
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind", ""), subject["name"]
        names.setdefault(f"{kind}s", []).append(
            f"{subject.get('namespace', '')}/{name}" if kind == "ServiceAccount" else name
        )
    subjects = {column: ", ".join(names.get(column, ())) for column in ("Users", "Groups", "ServiceAccounts")}
    return {"Role": f"{ref.get('kind', '')}/{ref.get('name', '')}", **subjects}


def _autoscaler_cells(autoscaler: Object, _: float) -> Cells:
    spec = autoscaler.get("spec") or {}
    target, texts = spec.get("scaleTargetRef") or {}, []
    for metric in spec.get("metrics") or ():
        resource = metric.get("resource") or metric.get("containerResource") or {}
        use = (resource.get("target") or {}).get("averageUtilization")
        texts.append(f"{resource['name']}: <unknown>/{use}%" if use is not None else "<unknown>/<auto>")
    return {
        "Reference": f"{target.get('kind', '')}/{target.get('name', '')}",
        "Targets": ", ".join(texts) or "<none>",
        "MinPods": str(spec.get("minReplicas", "<unset>")),
    }


def _queue_cells(queue: Object, _: float) -> Cells:
    """Columns beyond KAI's: the queue's GPU quota, fair share, allocation and requests."""
    quota = objects.dig(queue, "spec.resources.gpu.quota")
    fields = {"Fair Share": "fairShare", "Allocated": "allocated", "Requested": "requested"}
    gpus = {name: objects.dig(queue, f"status.{field}", {}).get("nvidia.com/gpu") for name, field in fields.items()}
    return {name: _format_gpus(amount) for name, amount in {"GPU Quota": quota, **gpus}.items()} | (
        {"GPU Quota": "unlimited"} if quota == -1 else {}
    )


def _format_gpus(amount: str | float | None) -> str | None:
    """300m → 0.3"""
    return None if amount is None else f"{float(parse(amount)):g}"


def _cron_job_cells(cron: Object, now: float) -> Cells:
    suspend = objects.dig(cron, "spec.suspend")
    return {
        "Suspend": "<unset>" if suspend is None else str(suspend),
        "Active": len(objects.dig(cron, "status.active") or ()),
        "Last Schedule": time_since(objects.dig(cron, "status.lastScheduleTime"), now, unknown="<none>"),
        **_template_cells(objects.dig(cron, "spec.jobTemplate.spec", {})),
    }


def _template_cells(spec: Mapping[str, Any]) -> Cells:
    """The wide columns of a Job's spec."""
    containers = objects.dig(spec, "template.spec.containers") or ()
    selector = objects.dig(spec, "selector.matchLabels", {})
    return {
        "Containers": ",".join(c["name"] for c in containers),
        "Images": ",".join(c.get("image", "") for c in containers),
        "Selector": ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or "<none>",
    }


def _batch_job_cells(job: Object, now: float) -> Cells:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    started, completions, parallelism = status.get("startTime"), spec.get("completions"), spec.get("parallelism", 1)
    wanted = f"{completions}" if completions is not None else f"1 of {parallelism}" if parallelism > 1 else "1"
    ended = objects.seconds(status.get("completionTime")) or now
    return {
        "Status": _batch_job_state(job),
        "Completions": f"{status.get('succeeded', 0)}/{wanted}",
        "Duration": human_duration(ended - objects.seconds(started)) if started else "",
        **_template_cells(spec),
    }


def _batch_job_state(job: Object) -> str:
    for ending in ("Complete", "Failed"):
        if objects.is_condition_true(job, ending):
            return ending
    if objects.is_deleting(job):
        return "Terminating"
    interim = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((state for state in interim if objects.is_condition_true(job, state)), "Running")


def time_since(text: str | None, now: float, unknown: str = "<unknown>") -> str:
    """The time since an RFC 3339 time, as a human duration; `unknown` when `text` is empty."""
    return human_duration(now - objects.seconds(text)) if text else unknown


_COMPUTED: Mapping[str, Callable[[Object, float], Cells]] = {
    "pods": pod_cells,
    "services": _service_cells,
    "endpoints": _endpoints_cells,
    "endpointslices.discovery.k8s.io": _slice_cells,
    "events": _event_cells,
    "nodes": _node_cells,
    "persistentvolumeclaims": _claim_cells,
    "resourcequotas": _quota_cells,
    "rolebindings.rbac.authorization.k8s.io": _role_binding_cells,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding_cells,
    "horizontalpodautoscalers.autoscaling": _autoscaler_cells,
    "queues.scheduling.run.ai": _queue_cells,
    "cronjobs.batch": _cron_job_cells,
    "jobs.batch": _batch_job_cells,
    **{kind.resource: _job_cells for kind in (*JOBS, TRAIN_JOB)},
    JOB_SET.resource: _jobset_cells,
}
