"""Registers the nodes of this start, and retires those of an earlier start with other options.

A node that is no longer wanted is deleted. While it has pods, running or ended, it stays, because their logs and exits
are found through it; it is cordoned and marked as retired until a start wants it again.

Each node has a Lease in `kube-node-lease`, renewed as kubelets do: its renew time shows when the node was last alive.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable

from rowlock import kinds
from rowlock.api import Api, View
from rowlock.errors import AlreadyExists, ApiError
from rowlock.kubelet.node import machine
from rowlock.objects import Object, annotations, dig, micro_timestamp, name, seconds, uid
from rowlock.scheduling.model.from_objects import RETIRED_ANNOTATION


async def register_node(api: Api, node: Object) -> None:
    """Creates or updates the node; one that was retired becomes schedulable again, unless it was cordoned before."""
    try:
        await api.create(kinds.NODE, node)
        return
    except AlreadyExists:
        existing = await api.get(kinds.NODE, "", name(node))
    metadata = {
        "labels": node["metadata"]["labels"],
        "annotations": {**node["metadata"]["annotations"], RETIRED_ANNOTATION: None},
    }
    spec_patch = {"spec": {"unschedulable": None}} if annotations(existing).get(RETIRED_ANNOTATION) == "true" else {}
    await api.patch(kinds.NODE, "", name(node), {"metadata": metadata, **spec_patch})
    await api.patch(kinds.NODE, "", name(node), {"status": node["status"]}, subresource="status")


async def retire_nodes(api: Api, current_nodes: Collection[str], with_pods: Collection[str]) -> list[str]:
    """Deletes nodes of an earlier start, or cordons them while they have pods; returns the names of those that stay."""
    remaining = []
    for node in (await api.list(kinds.NODE)).items:
        if not machine.is_own_node(node) or name(node) in current_nodes:
            continue
        if name(node) not in with_pods:
            await api.delete(kinds.NODE, "", name(node))
            continue
        remaining.append(name(node))
        if RETIRED_ANNOTATION not in annotations(node):
            retired_mark = "cordoned" if dig(node, "spec.unschedulable") else "true"
            await api.patch(
                kinds.NODE,
                "",
                name(node),
                {"metadata": {"annotations": {RETIRED_ANNOTATION: retired_mark}}, "spec": {"unschedulable": True}},
            )
    return remaining


LEASE_NAMESPACE = "kube-node-lease"
RENEW_INTERVAL = 10.0
"""Seconds between two renewals; a Lease lasts four times as long."""

TELLING = 30.0
"""Seconds within which a server that runs has told the end of a program to everything that reports it."""

log = logging.getLogger("rowlock.kubelet")


def told_until(view: View, nodes: Iterable[str]) -> float:
    """Seconds since the epoch: ends of programs before this moment were told by an earlier server, which renewed the Lease of one of
    these nodes `TELLING` seconds later or more. Call it before the first renewal."""
    leases = (view.get(kinds.LEASE, LEASE_NAMESPACE, node) for node in nodes)
    with contextlib.suppress(ValueError):  # somebody else wrote it
        return (
            max((seconds(str(dig(lease, "spec.renewTime") or "")) for lease in leases if lease), default=0.0) - TELLING
        )
    return 0.0


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
