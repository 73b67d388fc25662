"""Figures of projects, departments, nodes, node pools and the cluster over time: `GET .../metrics`.

Allocation comes from the objects. Usage counts the nodes' pods only, no other processes of the machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rowlock import objects, quantity
from rowlock.errors import ApiError, BadRequest, NotFound, Unsupported
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.clusters import check_cluster
from rowlock.rest.inventory.departments import find_department
from rowlock.rest.inventory.scope_history import (
    CLUSTER,
    CLUSTER_GAUGES,
    ORGANISATION_GAUGES,
    POOL_GAUGES,
    ScopeKey,
)
from rowlock.rest.projects import find_project
from rowlock.rest.workload_routes.metrics import (
    SAMPLE_PARAMETERS,
    Values,
    answer_series,
    parse_times,
    parse_types,
)
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.inventory import nodes
from rowlock.workloads.inventory.departments import department_id

_MIB = 2**20
_USED = {
    "GPU_UTILIZATION": ("gpu_utilization", ""),
    "GPU_MEMORY_USAGE_BYTES": ("gpu_memory_bytes", ""),
    "GPU_MEMORY_UTILIZATION": ("gpu_memory_bytes", "gpu memory"),
    "CPU_USAGE_CORES": ("cpu_cores", ""),
    "CPU_UTILIZATION": ("cpu_cores", "cpu"),
    "CPU_MEMORY_USAGE_BYTES": ("memory_bytes", ""),
    "CPU_MEMORY_UTILIZATION": ("memory_bytes", "memory"),
}
"""Run:ai's type → (field of a sample, resource of the nodes of which the value is a percentage, "" for an absolute value)."""
_POOL_USED = ("GPU_UTILIZATION", "GPU_MEMORY_UTILIZATION", "CPU_UTILIZATION", "CPU_MEMORY_UTILIZATION")
_ORGANISATION_NOT_KEPT = ("GPU_MEMORY_UTILIZATION",)
_POOL_NOT_KEPT = ("GPU_UTILIZATION_DISTRIBUTION", "AVG_WORKLOAD_WAIT_TIME", "GPU_QUOTA")
_NODE_NOT_KEPT = (
    "GPU_UTILIZATION_PER_GPU", "GPU_MEMORY_UTILIZATION_PER_GPU", "GPU_MEMORY_USAGE_BYTES_PER_GPU",
    "GPU_ALLOCATION_PER_GPU", "GPU_MEMORY_ALLOCATION_BYTES_PER_GPU", "GPU_IDLE_TIME_SECONDS_PER_GPU",
    "NVLINK_BANDWIDTH_TOTAL",
)  # fmt: skip
"""Metric types of Run:ai that never have values here."""


async def show_project(call: RestCall) -> Any:
    """GET /org-unit/projects/{id}/metrics: its quotas, and what its workloads held. Raises NotFound, BadRequest."""
    query = _parse_organisation_query(call)
    return _answer_steps(call, ("project", find_project(call).namespace), query)


async def show_department(call: RestCall) -> Any:
    """GET /org-unit/departments/{id}/metrics: its quotas, and what its projects' workloads held. Raises NotFound,
    BadRequest."""
    query = _parse_organisation_query(call)
    return _answer_steps(call, ("department", department_id(find_department(call))), query)


def _parse_organisation_query(call: RestCall) -> dict[str, str]:
    query = call.validate_query(*SAMPLE_PARAMETERS, "nodepoolName")
    if query.get("nodepoolName", nodes.DEFAULT_POOL) not in ("", nodes.DEFAULT_POOL):
        raise BadRequest('nodepoolName: quotas count over all node pools: name "default", or none.')
    return query


def _answer_steps(call: RestCall, key: ScopeKey, query: dict[str, str]) -> Any:
    types, times = parse_types(query, (*ORGANISATION_GAUGES, *_ORGANISATION_NOT_KEPT)), parse_times(query)
    return answer_series(types, times, _steps(call, key, ORGANISATION_GAUGES, times))


def _steps(call: RestCall, key: ScopeKey, names: Sequence[str], times: list[float]) -> dict[str, Values]:
    history = call.context.scopes
    if history is None:
        raise Unsupported("this server keeps no figures over time")
    rows = history.steps(key, times)
    return {name: [None if row is None else row[number] for row in rows] for number, name in enumerate(names)}


async def show_node(call: RestCall) -> Any:
    """GET /nodes/{id}/metrics: what the pods of a node used, by its id or its name. Raises NotFound, BadRequest."""
    query = call.validate_query(*SAMPLE_PARAMETERS)
    wanted, every = str(call.path["id"]), list(call.context.cache.nodes())
    node = next((node for node in every if wanted in (objects.uid(node), objects.name(node))), None)
    if node is None:
        hint = did_you_mean(wanted, [objects.name(node) for node in every])
        raise NotFound(f"Resource id not found: there is no node {wanted[:253]!r}.{hint}")
    types, times = parse_types(query, (*_USED, *_NODE_NOT_KEPT)), parse_times(query)
    return answer_series(types, times, _read_usage(call, ("node", objects.name(node)), [node], types, times))


async def show_pool(call: RestCall) -> Any:
    """GET /clusters/{id}/nodepools/{pool}/metrics: the capacity of a pool's nodes, and how much is held and used. Raises
    NotFound, BadRequest."""
    check_cluster(call)
    query = call.validate_query(*SAMPLE_PARAMETERS)
    pool, every = str(call.path["pool"]), list(call.context.cache.nodes())
    members, known = [node for node in every if nodes.pool_name(node) == pool], {*map(nodes.pool_name, every)}
    if pool not in (known | {nodes.DEFAULT_POOL}):
        hint = did_you_mean(pool, sorted(known))
        raise NotFound(f"Resource id not found: there is no node pool {pool[:253]!r}.{hint}")
    types, times = parse_types(query, (*POOL_GAUGES, *_POOL_USED, *_POOL_NOT_KEPT)), parse_times(query)
    found = _steps(call, ("pool", pool), POOL_GAUGES, times) | _read_usage(call, ("pool", pool), members, types, times)
    return answer_series(types, times, found)


async def show_cluster(call: RestCall) -> Any:
    """GET /clusters/{id}/metrics: the same for all nodes. Raises NotFound, BadRequest."""
    check_cluster(call)
    query = call.validate_query(*SAMPLE_PARAMETERS, "groupBy", "nodepoolName")
    if query.get("groupBy") or query.get("nodepoolName"):
        raise BadRequest(
            "the cluster's figures have no groups: ask /clusters/{id}/nodepools/{pool}/metrics for a node pool."
        )
    types = parse_types(query, (*CLUSTER_GAUGES, *_POOL_USED, *_POOL_NOT_KEPT))
    times = parse_times(query)
    used = _read_usage(call, CLUSTER, list(call.context.cache.nodes()), types, times)
    return answer_series(types, times, _steps(call, CLUSTER, CLUSTER_GAUGES, times) | used)


def _read_usage(
    call: RestCall, key: ScopeKey, members: Sequence[Object], types: list[str], times: list[float]
) -> dict[str, Values]:
    """The values by type, without types that have no values."""
    history = call.context.scopes
    series = history.series(key) if history is not None else None
    found: dict[str, Values] = {}
    for name in types:
        if series is None or name not in _USED:
            continue
        field, whole = _USED[name]
        total = sum(_amount(call, node, whole) for node in members) if whole else 100.0
        values = [
            None if value is None or not total else value * 100 / total for value in series.averages(field, times)
        ]
        if any(value is not None for value in values):
            found[name] = values
    return found


def _amount(call: RestCall, node: Object, resource: str) -> float:
    """A node's amount of a resource; 0 when its status has no valid quantity."""
    if resource == "gpu memory":
        return float(parse_node(node).gpus * call.context.cache.card_memory(objects.name(node)) * _MIB)
    try:
        return float(quantity.parse(objects.dig(node, "status.allocatable", {}).get(resource) or 0))
    except (ApiError, ValueError):
        return float(Decimal(0))
