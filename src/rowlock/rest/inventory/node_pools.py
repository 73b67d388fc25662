"""Node pools: `/api/v1/node-pools`. A pool is a label on its nodes, so changing a pool means patching nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.scheduling.model.pod_requests import NODE_POOL_LABEL
from rowlock.workloads import list_query
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.inventory.node_pools import (
    NodePool,
    NodePoolRequest,
    list_label_changes,
    node_pool_json,
    node_pools,
    parse_node_pool_request,
)
from rowlock.workloads.inventory.nodes import DEFAULT_POOL, pool_name

_OPTIONS = WriteOptions(manager="rowlock")
_READERS: list_query.Readers[NodePool] = {
    "id": lambda pool: pool.name,
    "name": lambda pool: pool.name,
    "phase": lambda pool: pool.phase,
    "createdAt": lambda pool: pool.creation_time,
    "updatedAt": lambda pool: pool.update_time,
    list_query.SEARCH: lambda pool: pool.name,
}


_CHOICES = {"phase": ("Creating", "Updating", "Deleting", "Empty", "Unschedulable", "Ready", "Deleted")}


def _select_pools(call: RestCall) -> tuple[Sequence[NodePool], list_query.Query]:
    cache = call.context.cache
    readers = {**_READERS, "clusterId": lambda _: cache.cluster}
    return list_query.select(call.query, node_pools(cache.nodes()), readers, choices=_CHOICES)


def _pool_json(call: RestCall, pool: NodePool) -> dict[str, Any]:
    cache = call.context.cache
    return node_pool_json(pool, cache.cluster, call.context.settings.cluster_name, cache.cluster_created)


async def index(call: RestCall) -> Any:
    """GET /node-pools: filtered, sorted and paged. Raises BadRequest."""
    rows, query = _select_pools(call)
    return list_query.list_body("nodepools", rows, query, lambda pool: _pool_json(call, pool))


async def count(call: RestCall) -> Any:
    """GET /node-pools/count: how many node pools the filters leave."""
    return {"count": len(_select_pools(call)[0])}


def _find_pool(call: RestCall) -> NodePool:
    pools = {pool.name: pool for pool in node_pools(call.context.cache.nodes())}
    wanted = str(call.path["id"])
    if wanted not in pools:
        raise NotFound(f"Resource id not found: there is no node pool {wanted!r}.{did_you_mean(wanted, pools)}")
    return pools[wanted]


async def show(call: RestCall) -> Any:
    """GET /node-pools/{id}: one node pool. Raises NotFound."""
    call.validate_query()
    return _pool_json(call, _find_pool(call))


async def create(call: RestCall) -> Any:
    """POST /node-pools: create a pool of the nodes with a label. Raises AlreadyExists, BadRequest, Conflict."""
    call.validate_query()
    request = parse_node_pool_request(await call.json())
    check_cluster_id(call, request.cluster)
    if any(pool.name == request.name for pool in node_pools(call.context.cache.nodes())):
        raise AlreadyExists(f"node pool {request.name!r} already exists; choose another name, or change it with PUT")
    return JsonResult(201, await _apply(call, request))


async def update(call: RestCall) -> Any:
    """PUT and PATCH /node-pools/{id}: give the pool the nodes with another label. Raises NotFound, BadRequest, Conflict."""
    call.validate_query()
    pool, body = _find_pool(call), await call.json()
    if pool.name == DEFAULT_POOL:
        raise Conflict("the node pool 'default' is every node that is in no other pool: change the other pools")
    own = {"name": pool.name, "labelKey": NODE_POOL_LABEL, "labelValue": pool.name}
    request = parse_node_pool_request({**own, **body} if isinstance(body, dict) else body)
    check_cluster_id(call, request.cluster)
    if request.name != pool.name:
        raise BadRequest(f"a node pool cannot be renamed ({pool.name!r} to {request.name!r}); create another one")
    return await _apply(call, request)


async def _apply(call: RestCall, request: NodePoolRequest) -> dict[str, Any]:
    # from the API server: the watch of a real cluster may not have sent a node that was labelled just before this request
    nodes = sorted((await call.context.api.list(kinds.NODE)).items, key=objects.name)
    chosen = [node for node in nodes if request.selects(node)]
    if not chosen:
        message = f"no node has the label {request.label_key}={request.label_value}: label the nodes first."
        raise BadRequest(message, causes=[Cause("unknown", message, "labelValue")])
    for node in chosen:
        if pool_name(node) not in (DEFAULT_POOL, request.name):
            raise Conflict(
                f"node {objects.name(node)} is in the node pool {pool_name(node)!r}; take it out of that first"
            )
    await _set_labels(call, list_label_changes(nodes, request))
    pools = {pool.name: pool for pool in node_pools(call.context.cache.nodes())}
    return _pool_json(call, pools.get(request.name, NodePool(request.name, ())))


async def delete(call: RestCall) -> Any:
    """DELETE /node-pools/{id}: its nodes join the pool `default`; workloads that request the deleted pool stay pending. Raises
    NotFound, Conflict."""
    call.validate_query()
    pool = _find_pool(call)
    if pool.name == DEFAULT_POOL:
        raise Conflict("the node pool 'default' cannot be deleted: it is every node that is in no other pool")
    await _set_labels(call, [(objects.name(node), None) for node in pool.nodes])
    return JsonResult(202, {"code": 202, "message": "Request has been accepted."})


async def _set_labels(call: RestCall, changes: Sequence[tuple[str, str | None]]) -> None:
    """Set the pool label of nodes (None removes it)."""
    for node, value in changes:
        patch = {"metadata": {"labels": {NODE_POOL_LABEL: value}}}
        await call.context.api.patch(kinds.NODE, "", node, patch, type="merge", options=_OPTIONS)
