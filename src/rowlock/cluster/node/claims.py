"""Persistent volume claims of the embedded node: a directory each, bound when a pod first uses it.

`claims/<namespace>_<name>_<uid>` is the directory; the claim says so in an annotation. Capacity is what was asked for: a
directory cannot refuse to grow, so who has more is told (`Full`), as a real volume would be full by then. The
directory goes when the claim has gone and no pod uses it (reclaim policy Delete, as claims on a real cluster have by
default).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable

from rowlock import kinds
from rowlock.api import Api, Record, View
from rowlock.cluster.node.eviction import on_disk
from rowlock.cluster.node.limits import amount
from rowlock.cluster.node.volume_directories import VolumeDirectories
from rowlock.cluster.node.volumes import Volume, claim_directory
from rowlock.collection import claims_of
from rowlock.errors import NotFound
from rowlock.objects import Object, annotations, dig, name, namespace, uid
from rowlock.quantity import whole

DIRECTORY = "rowlock.dev/directory"
CLAIM = kinds.PERSISTENT_VOLUME_CLAIM


async def bind(api: Api, view: View, pod: Object, places: VolumeDirectories, volumes: Collection[Volume]) -> None:
    """Writes down where the pod's claims lie. Raises ApiError when the store refuses."""
    wanted = {v.path: v for v in volumes if v.kind == "claim"}
    for claim in view.all(CLAIM, namespace(pod)) if wanted else ():
        volume = wanted.get(claim_directory(claim))
        if volume is None or dig(claim, "status.phase") == "Bound":
            continue
        where = str(places.where("", volume))
        told = {"metadata": {"annotations": {DIRECTORY: where}}, "spec": {"volumeName": f"pvc-{uid(claim)}"}}
        if annotations(claim).get(DIRECTORY) != where:
            await api.patch(CLAIM, namespace(claim), name(claim), told)
        status = {"phase": "Bound", "accessModes": dig(claim, "spec.accessModes", [])}
        status["capacity"] = dict(dig(claim, "spec.resources.requests", {}))
        await api.patch(CLAIM, namespace(claim), name(claim), {"status": status}, subresource="status")


def used(pods: Iterable[Object]) -> set[tuple[str, str]]:
    """Namespace and name of every claim that these pods name."""
    return {(namespace(pod), claim) for pod in pods for claim in claims_of(pod)}


class Full:
    """Which claims have more in their directory than they asked for; told once, and again after they were below."""

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._told: set[str] = set()

    async def look(self, view: View, places: VolumeDirectories) -> None:
        """Measures every claim that has a directory."""
        there = set(places.claims())
        found = [c for c in view.all(CLAIM) if claim_directory(c) in there and dig(c, "status.capacity.storage")]
        sizes = await asyncio.to_thread(lambda: [on_disk(places.claim(claim_directory(c))) for c in found])
        for claim, size in zip(found, sizes, strict=True):
            asked = str(dig(claim, "status.capacity.storage"))
            if size <= whole(asked):
                self._told.discard(uid(claim))
            elif uid(claim) not in self._told:
                self._told.add(uid(claim))
                text = f"the claim holds {amount(size)} and asked for {asked}: here it may, elsewhere the volume would be full"
                self._record(Record(claim, "Warning", "ClaimOverCapacity", text, "kubelet"))


async def forget(api: Api, places: VolumeDirectories, used: Collection[tuple[str, str]]) -> None:
    """Removes the directories whose claim has gone and is not `used` any more."""
    for directory in places.claims():
        where, called, mark = directory.split("_", 2) if directory.count("_") == 2 else ("", "", "")
        if mark and (where, called) not in used and not await _lives(api, where, called, mark):
            places.remove_claim(directory)


async def _lives(api: Api, where: str, called: str, mark: str) -> bool:
    try:
        return uid(await api.get(CLAIM, where, called)) == mark
    except NotFound:
        return False
