"""Every node's resources, and how much of them pods hold: `GET /api/v1/scheduler/nodes`, for `runai list nodes` and similar commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.scheduling.model.from_objects import parse_node
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.pod_requests import pod_shape
from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.workloads.inventory.nodes import gpu_type, has_simulated_gpus, node_status, pool_name

_PODS_PER_TURN = 128
"""Pods processed before yielding to the event loop."""


@dataclass(slots=True)
class HeldResources:
    """The sum of what the pods of one node hold: millicores, bytes, hundredths of GPUs."""

    cpu: int = 0
    memory: int = 0
    gpus: float = 0
    pods: int = 0

    def add(self, pod: Object, room: NodeState) -> None:
        shape = pod_shape(pod)
        self.cpu += shape.cpu
        self.memory += shape.memory
        self.gpus += shape.device_count * room.device_portion(shape)
        self.pods += 1


async def bound_pods(cache: InformerCache) -> AsyncIterator[tuple[str, Object]]:
    """(node name, pod) for each pod that has a node and has not ended; yields to the event loop regularly."""
    for number, pod in enumerate(cache.unfinished_pods(), 1):
        name = str(objects.dig(pod, "spec.nodeName") or "")
        if name and objects.phase(pod) not in objects.FINAL_PHASES:
            yield name, pod
        if number % _PODS_PER_TURN == 0:
            await asyncio.sleep(0)


async def index(call: RestCall) -> Any:
    """GET /scheduler/nodes: nodes by name. As in a scheduler, pods count with their requests, from binding until they end.
    Raises Forbidden."""
    call.validate_query()
    call.require("list", kinds.NODE)
    nodes = sorted(call.context.cache.nodes(), key=objects.name)
    rooms = {objects.name(node): NodeState(parse_node(node), 0) for node in nodes}
    held = {name: HeldResources() for name in rooms}
    async for name, pod in bound_pods(call.context.cache):
        if name in held:
            held[name].add(pod, rooms[name])
    return {"nodes": [_node_json(node, rooms[objects.name(node)], held[objects.name(node)]) for node in nodes]}


def _node_json(node: Object, room: NodeState, held: HeldResources) -> dict[str, Any]:
    """The node's own amounts are Kubernetes quantities, such as `8`, `500m` or `16Gi`."""
    allocatable = objects.dig(node, "status.allocatable", {})
    addresses = objects.dig(node, "status.addresses", [])
    return {
        "name": objects.name(node),
        "status": "Ready" if node_status(node) == "Ready" else "NotReady",
        "address": next((str(one.get("address")) for one in addresses if one.get("type") == "InternalIP"), ""),
        "nodePool": pool_name(node),
        "gpuType": (gpu_type(node) or "-") if room.node.gpus else "-",
        "gpus": room.node.gpus,
        "gpusSimulated": has_simulated_gpus(node),
        "allocatedGpus": held.gpus / WHOLE_GPU,
        "gpuMemory": room.node.gpu_memory,
        "cpu": str(allocatable.get("cpu", "")),
        "allocatedCpu": held.cpu / 1000,
        "memory": str(allocatable.get("memory", "")),
        "allocatedMemory": f"{held.memory / 2**20:.0f}Mi",
        "createdAt": objects.meta(node).get("creationTimestamp"),
        "pods": held.pods,
    }
