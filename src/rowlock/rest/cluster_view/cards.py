"""Every GPU of every node, and the pods on it: `GET /api/v1/scheduler/cards`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.cluster_view.allocations import HeldResources, bound_pods
from rowlock.rest.informers import InformerCache
from rowlock.scheduling.model.from_objects import assigned_devices, parse_node, pod_status
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.pod_requests import pod_shape
from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.scheduling.model.snapshot import Status
from rowlock.workloads import compute, runai_json
from rowlock.workloads.figures.usage_series import PodUsageSource
from rowlock.workloads.inventory.nodes import gpu_type, has_simulated_gpus, node_status, nvlink_ids, pool_name

_PLACES = (
    ("region",), ("zone",), ("datacenter", "dc", "building"), ("superblock", "spine"), ("block", "pod", "row"), ("rack",),
    ("leaf", "switch", "tor"), ("clique", "nvlink-domain", "nvlink_domain"),
)  # fmt: skip
"""Last words of labels that describe a node's place, the widest first: topology.kubernetes.io/zone, example.com/rack,
nvidia.com/gpu.clique. A job may use any label as its topology; the view shows these."""
_HOLDING = (Status.RUNNING, Status.RELEASING)


@dataclass(slots=True)
class _CardUsage:
    """What the holders of one card use in total (percent busy, bytes of memory); NaN if one of them is not measured."""

    busy: float = 0.0
    memory: float = 0.0
    idle_since: float = 0.0
    """Since when all of them are idle (Unix seconds); infinite while one is busy."""
    holders: int = 0

    def add(self, busy: float, memory: float, idle_since: float) -> None:
        self.busy, self.memory = self.busy + busy, self.memory + memory
        self.idle_since = max(self.idle_since, idle_since)
        self.holders += 1

    def to_json(self, now: float) -> dict[str, Any]:
        """All null if the card has no holder or one is not measured; the idle time of a busy card is 0."""
        if not self.holders or math.isnan(self.busy):
            return {"usedMemory": None, "utilization": None, "idleSeconds": None}
        idle = now - self.idle_since if math.isfinite(self.idle_since) else 0
        return {
            "usedMemory": round(self.memory / 2**20),
            "utilization": round(min(100.0, self.busy), 1),
            "idleSeconds": max(0, int(idle)),
        }


@dataclass(slots=True)
class _NodeView:
    """A node and what its pods hold and use."""

    node: Object
    room: NodeState
    body: dict[str, Any]
    held: HeldResources = field(default_factory=HeldResources)
    used: dict[int, _CardUsage] = field(default_factory=dict)
    """Index of the card → usage."""


async def index(call: RestCall) -> Any:
    """GET /scheduler/cards: nodes by name, each with its cards; shares are parts of one card, from 0 to 1. A pod whose cards
    are not known is under `elsewhere`, because other schedulers do not say which cards they assigned. CPUs are in cores, memory
    in bytes, card memory in MiB. Values that are not measured are null. Raises Forbidden."""
    call.validate_query()
    call.require("list", kinds.NODE)
    cache, usage = call.context.cache, call.context.pod_usage
    views: dict[str, _NodeView] = {}
    for node in sorted(cache.nodes(), key=objects.name):
        room = NodeState(parse_node(node), 0)
        views[objects.name(node)] = _NodeView(node, room, _node_json(node, room, cache.cluster))
    async for name, pod in bound_pods(cache):
        if (view := views.get(name)) is not None:
            view.held.add(pod, view.room)
            if pod_status(pod) in _HOLDING:
                _add_pod(view, pod, cache, usage)
    return {"nodes": [_with_sums(view, call.context.clock()) for view in views.values()]}


def _node_json(node: Object, room: NodeState, cluster: str) -> dict[str, Any]:
    domain, clique = nvlink_ids(node)
    return {
        "clusterUuid": cluster,
        "createdAt": objects.meta(node).get("creationTimestamp"),
        "readyGpus": room.node.gpus if node_status(node) == "Ready" else 0,
        "totalGpus": _total_gpus(node, room),
        "cpu": room.node.cpu / 1000,
        "memory": room.node.memory,
        "nvLinkDomainUid": domain,
        "nvLinkCliqueId": clique,
        "name": objects.name(node),
        "status": node_status(node),
        "unschedulable": room.node.unschedulable,
        "nodePool": pool_name(node),
        "gpuType": gpu_type(node),
        "gpusSimulated": has_simulated_gpus(node),
        "topology": _topology(node),
        "cardMemory": room.node.gpu_memory if room.node.gpus else 0,
        "cards": [{"index": index, "allocated": 0, "holders": []} for index in range(room.node.gpus)],
        "elsewhere": [],
    }


def _total_gpus(node: Object, room: NodeState) -> int:
    """The installed GPUs: a broken one counts in the node's capacity, but is not allocatable."""
    text = str(objects.dig(node, "status.capacity", {}).get(compute.GPU, ""))
    return max(int(text) if objects.is_digits(text) else 0, room.node.gpus)


def _topology(node: Object) -> list[dict[str, str]]:
    """The node's labels that describe its place, the widest first, at most one per level of `_PLACES`."""
    found: dict[int, dict[str, str]] = {}
    for label, value in sorted(objects.labels(node).items()):
        place = label.rpartition("/")[2].rpartition(".")[2].lower()
        rank = next((rank for rank, words in enumerate(_PLACES) if place in words), None)
        if rank is not None and value and rank not in found:
            found[rank] = {"label": label, "value": value}
    return [found[rank] for rank in sorted(found)]


def _add_pod(view: _NodeView, pod: Object, cache: InformerCache, usage: PodUsageSource | None) -> None:
    shape = pod_shape(pod)
    if not shape.wants_gpu:
        return
    cards = view.body["cards"]
    known = [index for index in assigned_devices(pod) if index < len(cards)]
    holder = {**_holder_json(pod, cache), "share": view.room.device_portion(shape) / WHOLE_GPU}
    for index in known:
        cards[index]["holders"].append(holder)
    for _ in range(shape.device_count - len(known)):
        view.body["elsewhere"].append(holder)
    _add_usage(view, pod, known, usage)


def _add_usage(view: _NodeView, pod: Object, indices: list[int], usage: PodUsageSource | None) -> None:
    """Add a pod's usage of each of its cards; the node reports them in the order in which they were assigned."""
    latest = usage.latest(objects.uid(pod)) if usage is not None else None
    measured = list(latest.gpus.items()) if latest is not None else []
    is_known = latest is not None and len(measured) == len(indices)
    for number, index in enumerate(indices):
        card = view.used.setdefault(index, _CardUsage())
        if latest is not None and is_known:
            name, (busy, memory) = measured[number]
            card.add(busy, memory, latest.gpu_idle_since.get(name, math.inf))
        else:
            card.add(math.nan, math.nan, math.inf)


def _holder_json(pod: Object, cache: InformerCache) -> dict[str, Any]:
    """The pod and its workload; the workload's id is "" for a pod without a job."""
    job, project = cache.job(cache.owner_uid(pod)), cache.projects().get(objects.namespace(pod))
    return {
        "pod": objects.name(pod),
        "namespace": objects.namespace(pod),
        "projectName": project.name if project else "",
        "workloadId": runai_json.workload_id(job) if job else "",
        "workloadName": objects.name(job) if job else "",
        "leaving": pod_status(pod) is Status.RELEASING,
    }


def _with_sums(view: _NodeView, now: float) -> dict[str, Any]:
    """The node with the allocated share and the usage of each card, and the sums for the node (GPUs in cards)."""
    node, nobody = view.body, _CardUsage()
    cards = [
        {
            **card,
            "allocated": round(sum(one["share"] for one in card["holders"]), 4),
            **view.used.get(card["index"], nobody).to_json(now),
        }
        for card in node["cards"]
    ]
    total = sum(card["allocated"] for card in cards) + sum(one["share"] for one in node["elsewhere"])
    return {
        **node,
        "cards": cards,
        "allocated": round(total, 4),
        "allocatedCpu": view.held.cpu / 1000,
        "allocatedMemory": view.held.memory,
        "pods": view.held.pods,
    }
