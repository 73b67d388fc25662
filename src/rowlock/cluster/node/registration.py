"""The nodes of this start as objects, and what becomes of those of an earlier one that had other flags.

A node that is not wanted any more is deleted. While pods are on it, running or over, it stays, because their logs and ends
are known by it; it is closed and marked as retired, until a start wants it again.
"""

from collections.abc import Collection

from rowlock import kinds
from rowlock.api import Api
from rowlock.cluster.node import machine
from rowlock.errors import AlreadyExists
from rowlock.objects import Object, annotations, dig, name
from rowlock.scheduling.reading import RETIRED


async def register(api: Api, node: Object) -> None:
    """Makes the node, or brings it up to date; one that was retired is open again, if nobody had cordoned it."""
    try:
        await api.create(kinds.NODE, node)
        return
    except AlreadyExists:
        known = await api.get(kinds.NODE, "", name(node))
    meta = {"labels": node["metadata"]["labels"], "annotations": {**node["metadata"]["annotations"], RETIRED: None}}
    opened = {"spec": {"unschedulable": None}} if annotations(known).get(RETIRED) == "true" else {}
    await api.patch(kinds.NODE, "", name(node), {"metadata": meta, **opened})
    await api.patch(kinds.NODE, "", name(node), {"status": node["status"]}, subresource="status")


async def retire(api: Api, wanted: Collection[str], with_pods: Collection[str]) -> list[str]:
    """Deletes nodes of an earlier start, or closes them while pods are on them; returns those that stay."""
    kept = []
    for node in (await api.list(kinds.NODE)).items:
        if not machine.ours(node) or name(node) in wanted:
            continue
        if name(node) not in with_pods:
            await api.delete(kinds.NODE, "", name(node))
            continue
        kept.append(name(node))
        if RETIRED not in annotations(node):
            by = "cordoned" if dig(node, "spec.unschedulable") else "true"
            await api.patch(
                kinds.NODE,
                "",
                name(node),
                {"metadata": {"annotations": {RETIRED: by}}, "spec": {"unschedulable": True}},
            )
    return kept
