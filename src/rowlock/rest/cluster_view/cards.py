"""Every GPU of every node, and the pods on it: `GET /api/v1/scheduler/cards`."""

from __future__ import annotations

import asyncio
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.scheduling.model.from_objects import assigned_devices, parse_node, pod_status
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.pod_requests import pod_shape
from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.scheduling.model.snapshot import Status
from rowlock.workloads import runai_json
from rowlock.workloads.inventory.nodes import gpu_type, node_status, pool_name

_PODS_PER_TURN = 128
"""Pods that are processed before other tasks of the event loop get their turn."""
_PLACES = (
    ("region",), ("zone",), ("datacenter", "dc", "building"), ("superblock", "spine"), ("block", "pod", "row"), ("rack",),
    ("leaf", "switch", "tor"), ("clique", "nvlink-domain", "nvlink_domain"),
)  # fmt: skip
"""Last words of labels that describe a node's place, the widest first: topology.kubernetes.io/zone, example.com/rack,
nvidia.com/gpu.clique. A job may use any label as its topology; the view shows these."""
_HOLDING = (Status.RUNNING, Status.RELEASING)


async def index(call: RestCall) -> Any:
    """GET /scheduler/cards: nodes by name, each with its cards; shares are parts of one card, from 0 to 1. A pod whose cards
    are not known is under `elsewhere`, because other schedulers do not say which cards they gave it. Raises Forbidden."""
    call.validate_query()
    call.require("list", kinds.NODE)
    cache = call.context.cache
    found = {objects.name(node): (node, NodeState(parse_node(node), 0)) for node in cache.nodes()}
    nodes = {name: _node_json(node, room) for name, (node, room) in sorted(found.items())}
    for number, pod in enumerate(list(cache.pods()), 1):
        name = str(objects.dig(pod, "spec.nodeName") or "")
        if name in nodes and pod_status(pod) in _HOLDING:
            _add_pod(nodes[name], found[name][1], pod, cache)
        if number % _PODS_PER_TURN == 0:
            await asyncio.sleep(0)
    return {"nodes": [_with_sums(node) for node in nodes.values()]}


def _node_json(node: Object, room: NodeState) -> dict[str, Any]:
    return {
        "name": objects.name(node),
        "status": node_status(node),
        "unschedulable": room.node.unschedulable,
        "nodePool": pool_name(node),
        "gpuType": gpu_type(node),
        "topology": _topology(node),
        "cardMemory": room.node.gpu_memory if room.node.gpus else 0,
        "cards": [{"index": index, "allocated": 0, "holders": []} for index in range(room.node.gpus)],
        "elsewhere": [],
    }


def _topology(node: Object) -> list[dict[str, str]]:
    """The node's place: its labels of places, the widest first, at most one of each kind."""
    found: dict[int, dict[str, str]] = {}
    for label, value in sorted(objects.labels(node).items()):
        place = label.rpartition("/")[2].rpartition(".")[2].lower()
        rank = next((rank for rank, words in enumerate(_PLACES) if place in words), None)
        if rank is not None and value and rank not in found:
            found[rank] = {"label": label, "value": value}
    return [found[rank] for rank in sorted(found)]


def _add_pod(node: dict[str, Any], room: NodeState, pod: Object, cache: InformerCache) -> None:
    shape = pod_shape(pod)
    if not shape.wants_gpu:
        return
    cards = node["cards"]
    known = [index for index in assigned_devices(pod) if index < len(cards)]
    holder = {**_holder_json(pod, cache), "share": room.device_portion(shape) / WHOLE_GPU}
    for index in known:
        cards[index]["holders"].append(holder)
    for _ in range(shape.device_count - len(known)):
        node["elsewhere"].append(holder)


def _holder_json(pod: Object, cache: InformerCache) -> dict[str, Any]:
    """The workload of a pod; a pod without a job has no id."""
    owner = objects.controller_of(pod) or {}
    job, project = cache.job(str(owner.get("uid") or "")), cache.projects().get(objects.namespace(pod))
    return {
        "pod": objects.name(pod),
        "namespace": objects.namespace(pod),
        "projectName": project.name if project else "",
        "workloadId": runai_json.workload_id(job) if job else "",
        "workloadName": objects.name(job) if job else "",
        "leaving": pod_status(pod) is Status.RELEASING,
    }


def _with_sums(node: dict[str, Any]) -> dict[str, Any]:
    """The node with the allocated share of each card, and the sum for the node, in cards."""
    cards = [{**card, "allocated": round(sum(one["share"] for one in card["holders"]), 2)} for card in node["cards"]]
    total = sum(card["allocated"] for card in cards) + sum(one["share"] for one in node["elsewhere"])
    return {**node, "cards": cards, "allocated": round(total, 2)}
