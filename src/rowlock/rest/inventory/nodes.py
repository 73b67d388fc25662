"""Nodes: `GET /api/v1/nodes` below the prefix `/runai`, and `GET /api/v1/clusters/{id}/nodes` at both.

`GET /api/v1/nodes/telemetry`: how many GPUs, CPUs and bytes the nodes have and pods hold, now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rowlock import objects, quantity
from rowlock.errors import ApiError
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.clusters import check_cluster
from rowlock.rest.inventory.telemetry import answer, parse_question
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.workloads import compute, list_query
from rowlock.workloads.inventory import nodes

_READERS: list_query.Readers[Object] = {
    "name": objects.name,
    "id": objects.uid,
    "status": nodes.node_status,
    "nodePool": nodes.pool_name,
    "gpuType": nodes.gpu_type,
    "createdAt": lambda node: objects.meta(node).get("creationTimestamp"),
    "updatedAt": nodes.updated_at,
    list_query.SEARCH: lambda node: f"{objects.name(node)}\n{nodes.pool_name(node)}\n{nodes.gpu_type(node)}".lower(),
}


_CHOICES = {"status": ("Ready", "NotReady", "Unknown")}


def _select_nodes(call: RestCall, *other_parameters: str) -> tuple[Sequence[Object], list_query.Query]:
    cluster = call.context.cache.cluster
    rows = sorted(call.context.cache.nodes(), key=objects.name)
    if name := call.query.get("nodeName"):
        rows = [node for node in rows if objects.name(node) == name]
    readers = {**_READERS, "clusterUuid": lambda _: cluster}
    return list_query.select(call.query, rows, readers, other_parameters=other_parameters, choices=_CHOICES)


async def index(call: RestCall) -> Any:
    """GET /nodes: every node, filtered, sorted and paged. Raises BadRequest."""
    rows, query = _select_nodes(call)
    cluster = call.context.cache.cluster
    return list_query.list_body("nodes", rows, query, lambda node: nodes.node_json(node, cluster))


async def count(call: RestCall) -> Any:
    """GET /nodes/count: how many nodes the filters leave."""
    return {"count": len(_select_nodes(call)[0])}


async def index_of_cluster(call: RestCall) -> Any:
    """GET /clusters/{id}/nodes: the same for one cluster, with the additional filter `nodeName`. Raises NotFound, BadRequest."""
    check_cluster(call)
    rows, query = _select_nodes(call, "nodeName")
    cluster = call.context.cache.cluster
    return list_query.list_body("nodes", rows, query, lambda node: nodes.node_json(node, cluster))


async def count_of_cluster(call: RestCall) -> Any:
    """GET /clusters/{id}/nodes/count: how many nodes the filters leave. Raises NotFound."""
    check_cluster(call)
    return {"count": len(_select_nodes(call)[0])}


_MIB = 1024 * 1024


class NodeFigures(NamedTuple):
    """The figures of one node. `held`: the GPUs that its pods hold."""

    node: Object
    gpus: int
    card_memory: int
    held: Decimal

    @property
    def is_ready(self) -> bool:
        return nodes.node_status(self.node) == "Ready"

    def capacity(self, resource: str) -> Decimal:
        """The node's capacity of a resource; 0 when its status has no valid quantity."""
        try:
            return quantity.parse(objects.dig(self.node, "status.capacity", {}).get(resource) or 0)
        except (ApiError, ValueError):
            return Decimal(0)


_TYPES: dict[str, Callable[[NodeFigures], Decimal | int]] = {
    "READY_GPU_NODES": lambda n: int(n.gpus > 0 and n.is_ready),
    "READY_GPUS": lambda n: n.gpus if n.is_ready else 0,
    "TOTAL_GPU_NODES": lambda n: int(n.gpus > 0),
    "TOTAL_GPUS": lambda n: n.gpus,
    "FREE_GPUS": lambda n: max(Decimal(0), n.gpus - n.held) if n.is_ready else 0,
    "ALLOCATED_GPUS": lambda n: n.held,
    "FULLY_FREE_GPU_NODES": lambda n: int(n.gpus > 0 and n.is_ready and not n.held),
    "TOTAL_CPU_CORES": lambda n: n.capacity("cpu"),
    "TOTAL_GPU_MEMORY_BYTES": lambda n: n.gpus * n.card_memory * _MIB,
    "TOTAL_CPU_MEMORY_BYTES": lambda n: n.capacity("memory"),
}
_GROUPS: dict[str, Callable[[NodeFigures], str]] = {
    "nodepool": lambda n: nodes.pool_name(n.node),
    "node": lambda n: objects.name(n.node),
}


async def show_telemetry(call: RestCall) -> Any:
    """GET /nodes/telemetry: one figure of all nodes, or of each group of them. Raises BadRequest."""
    question = parse_question(call, _TYPES, _GROUPS, "nodepoolName")
    read = _TYPES[question.type]
    figures = _node_figures(call, question.query.get("nodepoolName", ""))
    return answer(call, question, ((one, read(one)) for one in figures), _GROUPS)


def _node_figures(call: RestCall, pool: str) -> Iterable[NodeFigures]:
    cache = call.context.cache
    held: dict[str, Decimal] = {}
    for pod in cache.unfinished_pods():
        place = str(objects.dig(pod, "spec.nodeName") or "")
        if place and objects.dig(pod, "status.phase") not in objects.FINAL_PHASES:
            held[place] = held.get(place, Decimal(0)) + compute.pod_gpus(pod, cache.card_memory(place))
    for node in cache.nodes():
        name = objects.name(node)
        if not pool or nodes.pool_name(node) == pool:
            yield NodeFigures(node, parse_node(node).gpus, cache.card_memory(name), held.get(name, Decimal(0)))
