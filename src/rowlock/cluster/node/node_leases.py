"""A Lease per node, renewed as kubelets do: whoever asks when a node was last heard of finds it in `kube-node-lease`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from rowlock import kinds
from rowlock.api import Api, View
from rowlock.errors import ApiError
from rowlock.objects import Object, micro_timestamp, uid

NAMESPACE = "kube-node-lease"
SECONDS = 10.0
"""Between two renewals; a Lease lasts four times as long."""

log = logging.getLogger("rowlock.kubelet")


async def renew(api: Api, view: View, nodes: Iterable[str], clock: Callable[[], float]) -> None:
    """For ever. A renewal that is refused is tried again with the next."""
    while True:
        for node in list(nodes):
            try:
                await _renewed(api, view, node, clock())
            except ApiError as error:
                log.info("the lease of node %s was not renewed: %s", node, error)
        await asyncio.sleep(SECONDS)


async def _renewed(api: Api, view: View, node: str, now: float) -> None:
    moment = micro_timestamp(now)
    if view.get(kinds.LEASE, NAMESPACE, node) is not None:
        await api.patch(kinds.LEASE, NAMESPACE, node, {"spec": {"renewTime": moment}})
        return
    owner = view.get(kinds.NODE, "", node)
    if owner is not None and view.get(kinds.NAMESPACE, "", NAMESPACE) is not None:
        await api.create(kinds.LEASE, lease(owner, node, moment))


def lease(owner: Object, node: str, moment: str) -> Object:
    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid(owner)}
    return {
        "apiVersion": kinds.LEASE.api_version,
        "kind": kinds.LEASE.name,
        "metadata": {"name": node, "namespace": NAMESPACE, "ownerReferences": [reference]},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": int(SECONDS * 4), "renewTime": moment},
    }
