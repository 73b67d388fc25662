"""Registers the nodes of this start, and retires those of an earlier start with other options.

A node that is no longer wanted is deleted. While it has pods, running or ended, it stays, because their logs and exits
are found through it; it is cordoned and marked as retired until a start wants it again.
"""

from collections.abc import Collection

from rowlock import kinds
from rowlock.api import Api
from rowlock.errors import AlreadyExists
from rowlock.kubelet.node import machine
from rowlock.objects import Object, annotations, dig, name
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
