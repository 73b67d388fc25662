"""What runs now and what it uses: `GET /api/v1/usage` (all workloads, and nodes), `GET /api/v1/usage/{id}` (each pod of
one)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rowlock import kinds, objects, quantity
from rowlock.errors import BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.workloads import find_workload
from rowlock.workloads import compute, runai_json
from rowlock.workloads import pods as ranks
from rowlock.workloads.figures.resources import json_number
from rowlock.workloads.figures.usage_series import LatestUsage, mean_of
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.runai_json import Workload

_WORKLOADS_PER_TURN = 64
_SUMS = {
    "cpuCores": "cpu_cores", "memoryBytes": "memory_bytes", "diskReadBytes": "disk_read", "diskWriteBytes": "disk_write",
    "netReceiveBytes": "net_receive", "netTransmitBytes": "net_transmit", "gpuMemoryBytes": "gpu_memory_bytes",
}  # fmt: skip
_NO_USAGE: dict[str, Any] = {**dict.fromkeys(_SUMS), "gpuUtilization": None}


async def index(call: RestCall) -> Any:
    """GET /usage: the unfinished workloads (of `project`, if it is given), and the nodes, if the caller may list
    them.
    Disk and network are in bytes per second. Raises NotFound."""
    wanted = call.validate_query("project").get("project", "")
    cache = call.context.cache
    visible = {space: one for space, one in cache.projects().items() if call.allows("list", kinds.POD, space)}
    if wanted:
        visible = {space: one for space, one in visible.items() if wanted in (one.id, one.name)}
        if not visible:
            raise NotFound(f"there is no project {wanted[:60]!r}.")
    workloads = []
    for number, row in enumerate(cache.rows(), 1):
        is_shown = row.namespace in visible and cache.phase(row.uid) not in TERMINAL
        workload = cache.workload(row.uid) if is_shown else None
        if workload is not None:
            workloads.append(_workload_json(call, workload))
        if number % _WORKLOADS_PER_TURN == 0:
            await asyncio.sleep(0)
    nodes = await _nodes_json(call) if call.allows("list", kinds.NODE) else []
    return {"measured": call.context.pod_usage is not None, "workloads": workloads, "nodes": nodes}


async def show(call: RestCall) -> Any:
    """GET /usage/{id}: one workload and each of its pods. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    pods = [_pod_json(call, workload, pod) for pod in ranks.sort_by_rank(workload.pods)]
    return {"measured": call.context.pod_usage is not None, **_workload_json(call, workload), "pods": pods}


def _workload_json(call: RestCall, workload: Workload) -> dict[str, Any]:
    pods = list(workload.pods)
    usages = [usage for pod in pods if (usage := _latest(call, pod)) is not None]
    idle = [usage.idle_since for usage in usages]
    idle_since = max((one for one in idle if one is not None), default=None) if None not in idle else None
    return {
        "id": runai_json.workload_id(workload.job),
        "name": objects.name(workload.job),
        "projectName": workload.project.name,
        "phase": call.context.cache.phase(objects.uid(workload.job)),
        "podCount": len(pods),
        "gpus": json_number(sum((_gpus(workload, pod) for pod in pods if _holds_node(pod)), Decimal(0))),
        "usage": sum_usage(usages),
        "idleSeconds": None if idle_since is None else max(0, int(call.context.clock() - idle_since)),
    }


def _pod_json(call: RestCall, workload: Workload, pod: Object) -> dict[str, Any]:
    usage = _latest(call, pod)
    gpus = usage.gpus if usage else {}
    return {
        "name": objects.name(pod),
        "rank": ranks.rank_label(workload.job, pod),
        "node": objects.dig(pod, "spec.nodeName") or "",
        "phase": objects.phase(pod) or "Pending",
        "gpus": json_number(_gpus(workload, pod)),
        "usage": sum_usage([usage] if usage else []),
        "perGpu": [
            {"gpu": name, "gpuUtilization": _json(busy), "gpuMemoryBytes": _json(memory)}
            for name, (busy, memory) in gpus.items()
        ],
    }


def _latest(call: RestCall, pod: Object) -> LatestUsage | None:
    return call.context.pod_usage.latest(objects.uid(pod)) if call.context.pod_usage else None


def _gpus(workload: Workload, pod: Object) -> Decimal:
    return compute.pod_gpus(pod, workload.card_memory(str(objects.dig(pod, "spec.nodeName") or "")))


def _holds_node(pod: Object) -> bool:
    return bool(objects.dig(pod, "spec.nodeName")) and objects.phase(pod) in ("Pending", "Running")


def sum_usage(usages: Iterable[LatestUsage]) -> dict[str, Any]:
    """The sum of all, with the mean GPU utilization; null for values that are not measured."""
    samples = [usage.sample for usage in usages]
    if not samples:
        return dict(_NO_USAGE)
    sums = {}
    for name, field in _SUMS.items():
        known = [value for sample in samples if not math.isnan(value := getattr(sample, field))]
        sums[name] = _json(sum(known)) if known else None
    return {**sums, "gpuUtilization": _json(mean_of([sample.gpu_utilization for sample in samples]))}


def _json(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.6g}")


async def _nodes_json(call: RestCall) -> list[dict[str, Any]]:
    """Each node with its resources and what its pods use."""
    by_node: dict[str, list[LatestUsage]] = {}
    for number, pod in enumerate(call.context.cache.pods(), 1):
        if (usage := _latest(call, pod)) is not None:
            by_node.setdefault(str(objects.dig(pod, "spec.nodeName") or ""), []).append(usage)
        if number % 512 == 0:
            await asyncio.sleep(0)
    return [_node_json(node, by_node.get(objects.name(node), [])) for node in call.context.cache.nodes()]


def _node_json(node: Object, usages: list[LatestUsage]) -> dict[str, Any]:
    amounts = {name: _amount(node, name) for name in ("cpu", "memory", compute.GPU)}
    busy = [part for usage in usages for part, _ in usage.gpus.values()]
    gpus = amounts[compute.GPU] or 0
    has_real = bool(busy) and bool(gpus)
    return {
        "name": objects.name(node),
        "cpuCores": amounts["cpu"],
        "memoryBytes": amounts["memory"],
        "gpus": gpus,
        "pods": len(usages),
        "usage": {
            **sum_usage(usages),
            "gpuUtilization": _json(sum(part for part in busy if not math.isnan(part)) / gpus) if has_real else None,
        },
    }


def _amount(node: Object, name: str) -> int | float | None:
    try:
        return json_number(quantity.parse(str(objects.dig(node, "status.allocatable")[name])))
    except (BadRequest, KeyError, TypeError):
        return None
