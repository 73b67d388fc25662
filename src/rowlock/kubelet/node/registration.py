"""The nodes of this start as objects, and what becomes of those of an earlier one that had other flags.

A node that is not wanted any more is deleted. While pods are on it, running or over, it stays, because their logs and ends
are known by it; it is closed and marked as retired, until a start wants it again.
"""

from collections.abc import Collection

from rowlock import kinds
from rowlock.api import Api
from rowlock.errors import AlreadyExists
from rowlock.kubelet.node import machine
from rowlock.objects import Object, annotations, dig, name
from rowlock.scheduling.model.from_objects import RETIRED_ANNOTATION


async def register_node(api: Api, node: Object) -> None:
    """Makes the node, or brings it up to date; one that was retired is open again, if nobody had cordoned it."""
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
    """Deletes nodes of an earlier start, or closes them while pods are on them; returns those that stay."""
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
