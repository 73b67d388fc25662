"""A Lease per node in `kube-node-lease`, renewed as kubelets do: its renew time shows when the node was last alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from rowlock import kinds
from rowlock.api import Api, View
from rowlock.errors import ApiError
from rowlock.objects import Object, micro_timestamp, uid

LEASE_NAMESPACE = "kube-node-lease"
RENEW_INTERVAL = 10.0
"""Seconds between two renewals; a Lease lasts four times as long."""

log = logging.getLogger("rowlock.kubelet")


async def renew_leases(api: Api, view: View, nodes: Iterable[str], clock: Callable[[], float]) -> None:
    """Renews the Leases of all nodes until cancelled. A refused renewal is tried again at the next interval."""
    while True:
        for node in list(nodes):
            try:
                await _renew_lease(api, view, node, clock())
            except ApiError as error:
                log.info("the lease of node %s was not renewed: %s", node, error)
        await asyncio.sleep(RENEW_INTERVAL)


async def _renew_lease(api: Api, view: View, node: str, now: float) -> None:
    renew_time = micro_timestamp(now)
    if view.get(kinds.LEASE, LEASE_NAMESPACE, node) is not None:
        await api.patch(kinds.LEASE, LEASE_NAMESPACE, node, {"spec": {"renewTime": renew_time}})
        return
    node_object = view.get(kinds.NODE, "", node)
    if node_object is not None and view.get(kinds.NAMESPACE, "", LEASE_NAMESPACE) is not None:
        await api.create(kinds.LEASE, lease_object(node_object, node, renew_time))


def lease_object(node_object: Object, node: str, renew_time: str) -> Object:
    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid(node_object)}
    return {
        "apiVersion": kinds.LEASE.api_version,
        "kind": kinds.LEASE.name,
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE, "ownerReferences": [reference]},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": int(RENEW_INTERVAL * 4), "renewTime": renew_time},
    }
