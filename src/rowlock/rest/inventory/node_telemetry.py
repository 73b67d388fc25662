"""`GET /api/v1/nodes/telemetry`: how many GPUs, CPUs and bytes the nodes have and pods hold, now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from rowlock import objects, quantity
from rowlock.errors import ApiError
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.telemetry import answer, parse_question
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.workloads import compute
from rowlock.workloads.inventory import nodes

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


async def show(call: RestCall) -> Any:
    """GET /nodes/telemetry: one figure of all nodes, or of each group of them. Raises BadRequest."""
    question = parse_question(call, _TYPES, _GROUPS, "nodepoolName")
    read = _TYPES[question.type]
    figures = _node_figures(call, question.query.get("nodepoolName", ""))
    return answer(call, question, ((one, read(one)) for one in figures), _GROUPS)


def _node_figures(call: RestCall, pool: str) -> Iterable[NodeFigures]:
    cache = call.context.cache
    held: dict[str, Decimal] = {}
    for pod in cache.pods():
        place = str(objects.dig(pod, "spec.nodeName") or "")
        if place and objects.dig(pod, "status.phase") not in objects.FINAL_PHASES:
            held[place] = held.get(place, Decimal(0)) + compute.pod_gpus(pod, cache.card_memory(place))
    for node in cache.nodes():
        name = objects.name(node)
        if not pool or nodes.pool_name(node) == pool:
            yield NodeFigures(node, parse_node(node).gpus, cache.card_memory(name), held.get(name, Decimal(0)))
