"""The cluster, of which a server has one: `GET /api/v1/clusters`, `GET /api/v1/clusters/{id}`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rowlock.errors import BadRequest, Cause, NotFound
from rowlock.rest.call import RestCall
from rowlock.workloads.runai_json import TENANT


def check_cluster(call: RestCall) -> None:
    """Raises NotFound unless the path names this cluster."""
    cluster = call.context.cache.cluster
    if str(call.path["id"]).lower() != cluster.lower():
        raise NotFound(
            f"Resource id not found: there is no cluster {call.path['id']!r}. This server has one: {cluster}."
        )


def check_cluster_id(call: RestCall, identifier: str) -> None:
    """Raises BadRequest when a request's clusterId names another cluster."""
    cluster = call.context.cache.cluster
    if identifier and identifier.lower() != cluster.lower():
        message = f"there is no cluster {identifier!r}. This server has one: {cluster}."
        raise BadRequest(message, causes=[Cause("unknown", message, "clusterId")])


def _cluster_json(call: RestCall) -> dict[str, Any]:
    settings, cache = call.context.settings, call.context.cache
    now = datetime.fromtimestamp(call.context.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "uuid": cache.cluster,
        "tenantId": TENANT,
        "name": settings.cluster_name,
        "createdAt": cache.cluster_created,
        "updatedAt": cache.cluster_created,
        "deletedAt": None,
        "deleteRequestedAt": None,
        "lastLiveness": now,
        "domain": None,
        "version": settings.version,
        "status": {"state": "Connected", "conditions": []},
    }


async def index(call: RestCall) -> Any:
    """GET /clusters: a bare array, as Run:ai answers."""
    call.validate_query("verbosity", "includeRequestedForDelete")
    return [_cluster_json(call)]


async def show(call: RestCall) -> Any:
    """GET /clusters/{id}: one cluster. Raises NotFound."""
    call.validate_query("verbosity", "includeRequestedForDelete")
    check_cluster(call)
    return _cluster_json(call)
