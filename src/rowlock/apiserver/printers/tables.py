"""`kubectl get`'s columns: the Table that the server makes of objects, one row of functions per kind.

Columns with a priority above 0 are those of `-o wide`. Names, types and contents are the real API server's. Pure:
the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rowlock import kinds, objects
from rowlock.apiserver.printers.durations import time_since
from rowlock.apiserver.printers.pod_columns import pod_cells
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse

Cells = Callable[[Object, float], list[Any]]
Include = Literal["None", "Metadata", "Object"]


@dataclass(frozen=True, slots=True)
class Columns:
    """What a kind shows: column definitions, and how a row is filled."""

    definitions: tuple[dict[str, Any], ...]
    cells: Cells


def columns(cells: Cells, *names: str) -> Columns:
    """Names as written; `+` before one makes it a column of `-o wide`, `:type` after it gives a type other than string."""
    definitions: list[dict[str, Any]] = []
    for name in names:
        text, _, kind = name.lstrip("+").partition(":")
        definitions.append(
            {
                "name": text,
                "type": kind or "string",
                "format": "name" if text == "Name" else "",
                "description": "",
                "priority": 1 if name.startswith("+") else 0,
            }
        )
    return Columns(tuple(definitions), cells)


def scale_table(job: Object, scale: Object, now: float, *, include: Include = "Metadata") -> Object:
    """`kubectl get --subresource=scale`: what is wanted and what is there."""
    desired, available = objects.dig(scale, "spec.replicas", 0), objects.dig(scale, "status.replicas", 0)
    shown = Columns(_SCALE.definitions, lambda obj, now: [objects.name(obj), desired, available, _age_of(obj, now)])
    result = table(kinds.POD, [scale], now, include=include, columns=shown)
    return {**result, "metadata": {"resourceVersion": objects.meta(job).get("resourceVersion", "")}}


def table(
    kind: Kind, objs: Iterable[Object], now: float, *, include: Include = "Metadata", columns: Columns | None = None
) -> Object:
    """A `meta.k8s.io/v1` Table of objects of one kind; the caller adds list metadata."""
    columns = columns or COLUMNS.get(kind, _DEFAULT)
    rows = []
    for obj in objs:
        row: dict[str, Any] = {"cells": columns.cells(obj, now)}
        if include != "None":
            row["object"] = obj if include == "Object" else partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": list(columns.definitions),
        "rows": rows,
    }


def partial_metadata(obj: Object) -> Object:
    """Only the metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": objects.meta(obj)}


def _age_of(obj: Object, now: float) -> str:
    return time_since(objects.meta(obj).get("creationTimestamp"), now)


def _cells_of(*getters: Callable[[Object], Any] | None) -> Cells:
    """Each cell is what a function says of the object, its age where there is none."""
    return lambda obj, now: [_age_of(obj, now) if getter is None else getter(obj) for getter in getters]


def _last_condition_type(obj: Object) -> str | None:
    conditions = objects.dig(obj, "status.conditions") or []
    return conditions[-1].get("type") if conditions else None


def _service_cells(obj: Object, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or ()) or "<none>"
    address = spec.get("clusterIP") or "<none>"
    outer = ",".join(spec.get("externalIPs") or ()) or "<none>"
    selector = _format_labels(spec.get("selector") or {})
    return [objects.name(obj), spec.get("type"), address, outer, ports, _age_of(obj, now), selector]


def _format_labels(labels: dict[str, str]) -> str:
    return ",".join(f"{k}={labels[k]}" for k in sorted(labels)) or "<none>"


def _event_cells(obj: Object, now: float) -> list[Any]:
    involved, source = obj.get("involvedObject") or {}, obj.get("source") or {}
    series = obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    regarding = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    return [
        time_since(last, now), obj.get("type", ""), obj.get("reason", ""), regarding, involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component, str(obj.get("message", "")).strip(), time_since(first, now), count,
        objects.name(obj),
    ]  # fmt: skip


def _node_cells(obj: Object, now: float) -> list[Any]:
    info = objects.dig(obj, "status.nodeInfo", {})
    addresses = objects.dig(obj, "status.addresses", ())

    def address(kind: str) -> str:
        return next((a.get("address", "") for a in addresses if a.get("type") == kind), "") or "<none>"

    roles = sorted(_roles(objects.labels(obj)))
    return [
        objects.name(obj), _node_status(obj), ",".join(roles) or "<none>", _age_of(obj, now),
        info.get("kubeletVersion", ""), address("InternalIP"), address("ExternalIP"),
        info.get("osImage") or "<unknown>", info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


def _node_status(obj: Object) -> str:
    ready = objects.condition(obj, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if objects.dig(obj, "spec.unschedulable") else status


def _roles(labels: dict[str, str]) -> Iterable[str]:
    for key, value in labels.items():
        if key.startswith("node-role.kubernetes.io/"):
            yield key.removeprefix("node-role.kubernetes.io/")
        elif key == "kubernetes.io/role" and value:
            yield value


_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""An older way to name a claim's storage class, which still goes first."""
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _claim_cells(obj: Object, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if objects.is_deleting(obj) else status.get("phase", "")
    capacity, modes = "", ""
    if spec.get("volumeName"):
        modes = ",".join(_MODES.get(m, m) for m in status.get("accessModes") or ())
        capacity = str((status.get("capacity") or {}).get("storage", "0"))
    return [
        objects.name(obj), phase, spec.get("volumeName", ""), capacity, modes,
        objects.annotations(obj).get(_STORAGE_CLASS) or spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>", _age_of(obj, now), spec.get("volumeMode") or "<unset>",
    ]  # fmt: skip


def _quota_cells(obj: Object, now: float) -> list[Any]:
    hard, used = objects.dig(obj, "status.hard", {}), objects.dig(obj, "status.used", {})
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        into = limits if name.startswith("limits.") else requests
        into.append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [objects.name(obj), ", ".join(requests), ", ".join(limits), _age_of(obj, now)]


def _role_binding_cells(obj: Object, now: float) -> list[Any]:
    ref, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()

    def subject_names(kind: str) -> str:
        matching = (s for s in subjects if s.get("kind") == kind)
        names = (f"{s.get('namespace', '')}/{s['name']}" if kind == "ServiceAccount" else s["name"] for s in matching)
        return ", ".join(names)

    role = f"{ref.get('kind', '')}/{ref.get('name', '')}"
    return [
        objects.name(obj),
        role,
        _age_of(obj, now),
        subject_names("User"),
        subject_names("Group"),
        subject_names("ServiceAccount"),
    ]


def _autoscaler_cells(obj: Object, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    return [
        objects.name(obj), f"{target.get('kind', '')}/{target.get('name', '')}", _format_targets(spec),
        str(spec.get("minReplicas", "<unset>")), spec.get("maxReplicas", 0), status.get("currentReplicas", 0),
        _age_of(obj, now),
    ]  # fmt: skip


def _format_targets(spec: dict[str, Any]) -> str:
    texts = []
    for metric in spec.get("metrics") or ():
        resource = metric.get("resource") or metric.get("containerResource") or {}
        use = (resource.get("target") or {}).get("averageUtilization")
        texts.append(f"{resource['name']}: <unknown>/{use}%" if use is not None else "<unknown>/<auto>")
    return ", ".join(texts) or "<none>"


def _queue_cells(obj: Object, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    return [objects.name(obj), spec.get("priority"), spec.get("parentQueue"), objects.dig(obj, "status.childQueues"),
            spec.get("displayName"), *_gpu_figures(obj), _age_of(obj, now)]  # fmt: skip


def _gpu_figures(queue: Object) -> list[str | None]:
    """Beyond KAI's columns: what the queue may have, and has. GPUs are what teams share."""
    quota = objects.dig(queue, "spec.resources.gpu.quota")
    figures = [objects.dig(queue, f"status.{name}", {}).get("nvidia.com/gpu") for name in _GPU_STATUS_FIELDS]
    return [None if quota is None else "unlimited" if quota == -1 else _format_gpus(quota)] + [
        None if amount is None else _format_gpus(amount) for amount in figures
    ]


def _format_gpus(amount: str | float) -> str:
    """300m → 0.3"""
    return f"{float(parse(amount)):g}"


_GPU_STATUS_FIELDS = ("fairShare", "allocated", "requested")
_DEFAULT = columns(_cells_of(objects.name, None), "Name", "Age")
CREATED = columns(
    _cells_of(objects.name, lambda o: objects.meta(o).get("creationTimestamp")), "Name", "Created At:date"
)
_SCALE = columns(_cells_of(objects.name, None), "Name", "Desired:integer", "Available:integer", "Age")
_JOB = columns(_cells_of(objects.name, _last_condition_type, None), "Name", "State", "Age:date")

COLUMNS: dict[Kind, Columns] = {
    kinds.POD: columns(pod_cells, "Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node",
                        "+Readiness Gates"),
    kinds.SERVICE: columns(_service_cells, "Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"),
    kinds.EVENT: columns(_event_cells, "Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message",
                          "+First Seen", "+Count", "+Name"),
    kinds.NAMESPACE: columns(_cells_of(objects.name, objects.phase, None), "Name", "Status", "Age"),
    kinds.NODE: columns(_node_cells, "Name", "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP",
                         "+OS-Image", "+Kernel-Version", "+Container-Runtime"),
    kinds.CONFIG_MAP: columns(
        _cells_of(objects.name, lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ()), None),
        "Name", "Data", "Age"),
    kinds.SECRET: columns(
        _cells_of(objects.name, lambda o: o.get("type", "Opaque"), lambda o: len(o.get("data") or ()), None),
        "Name", "Type", "Data", "Age"),
    kinds.SERVICE_ACCOUNT: columns(
        _cells_of(objects.name, lambda o: len(o.get("secrets") or ()), None), "Name", "Secrets", "Age"),
    kinds.PERSISTENT_VOLUME_CLAIM: columns(_claim_cells, "Name", "Status", "Volume", "Capacity", "Access Modes",
                                            "StorageClass", "VolumeAttributesClass", "Age", "+VolumeMode"),
    kinds.RESOURCE_QUOTA: columns(_quota_cells, "Name", "Request", "Limit", "Age"),
    kinds.PRIORITY_CLASS: columns(
        _cells_of(objects.name, lambda o: o.get("value", 0), lambda o: bool(o.get("globalDefault")), None,
                  lambda o: o.get("preemptionPolicy", "")),
        "Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
    kinds.LEASE: columns(
        _cells_of(objects.name, lambda o: objects.dig(o, "spec.holderIdentity", ""), None), "Name", "Holder", "Age"),
    kinds.ROLE: CREATED,
    kinds.ROLE_BINDING: columns(_role_binding_cells, "Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts"),
    kinds.AUTOSCALER: columns(_autoscaler_cells, "Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"),
    kinds.MPIJOB: columns(_cells_of(objects.name, None, _last_condition_type), "Name", "Age:date", "State"),
    kinds.QUEUE: columns(_queue_cells, "Name", "Priority:integer", "Parent", "Children", "DisplayName", "GPU Quota",
                          "Fair Share", "Allocated", "Requested", "Age:date"),
    **{kind: _JOB for kind in kinds.JOBS if kind is not kinds.MPIJOB},
}  # fmt: skip
