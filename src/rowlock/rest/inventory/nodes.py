"""Nodes: `GET /api/v1/nodes` below the prefix `/runai`, and `GET /api/v1/clusters/{id}/nodes` at both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.clusters import check_cluster
from rowlock.workloads import list_query
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
