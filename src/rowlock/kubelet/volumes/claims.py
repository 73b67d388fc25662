"""Persistent volume claims of the embedded node: a directory each, bound when a pod first uses it.

`claims/<namespace>_<name>_<uid>` is the directory; an annotation of the claim names it. Capacity is what was requested: a
directory has no size limit, so a claim that exceeds it gets a warning (`ClaimUsageMonitor`), as a real volume would be full. The
directory is removed when the claim is deleted and no pod uses it (reclaim policy Delete, the default on real clusters).
If this server never knew the claim, it may not have been deleted: an older database may have been restored. The directory then stays
for `RETENTION_SECONDS`, counted from the first look or from the last write to it, whichever is later.

claims/.gone/<directory>     since when there is no such claim (the file's time)
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Container, Iterable

from rowlock import kinds
from rowlock.api import Api, Record, View
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import NotFound
from rowlock.kubelet.files.beneath import disk_usage, newest_change
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.shim.cgroups import format_bytes
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.volumes.volumes import claim_directory
from rowlock.objects import Object, annotations, dig, name, namespace, uid
from rowlock.quantity import integer_value
from rowlock.system.volume_claims import claims_of

DIRECTORY_ANNOTATION = "rowlock.dev/directory"
CLAIM = kinds.PERSISTENT_VOLUME_CLAIM
RETENTION_SECONDS = 7 * 86400.0
log = logging.getLogger("rowlock.kubelet")


async def bind(
    api: Api, view: View, pod_namespace: str, directories: VolumeDirectories, volumes: Collection[Volume]
) -> None:
    """Binds the claims of a pod of this namespace to their directories. Raises ApiError when the store refuses."""
    claim_volumes = {v.path: v for v in volumes if v.kind == "claim"}
    for claim in view.all(CLAIM, pod_namespace) if claim_volumes else ():
        volume = claim_volumes.get(claim_directory(claim))
        if volume is not None:
            directories.known_claims.add(claim_directory(claim))
        if volume is None or dig(claim, "status.phase") == "Bound":
            continue
        directory = str(directories.volume_path("", volume))
        patch = {
            "metadata": {"annotations": {DIRECTORY_ANNOTATION: directory}},
            "spec": {"volumeName": f"pvc-{uid(claim)}"},
        }
        status = {"phase": "Bound", "accessModes": dig(claim, "spec.accessModes", [])}
        status["capacity"] = dict(dig(claim, "spec.resources.requests", {}))
        if annotations(claim).get(DIRECTORY_ANNOTATION) != directory:
            await api.patch(CLAIM, namespace(claim), name(claim), patch)
        await api.patch(CLAIM, namespace(claim), name(claim), {"status": status}, subresource="status")


async def correct_directories(api: Api, view: View, directories: VolumeDirectories) -> None:
    """Corrects the directories in claims after a backup was restored elsewhere or the data directory was moved. Raises ApiError."""
    for claim in view.all(CLAIM):
        said, right = annotations(claim).get(DIRECTORY_ANNOTATION), directories.claim_path(claim_directory(claim))
        if said not in (None, right):
            await api.patch(
                CLAIM, namespace(claim), name(claim), {"metadata": {"annotations": {DIRECTORY_ANNOTATION: right}}}
            )


def used_claims(pods: Iterable[Object]) -> set[tuple[str, str]]:
    """Namespace and name of every claim that these pods name."""
    return {(namespace(pod), claim) for pod in pods for claim in claims_of(pod)}


async def claims_in_use(view: View, uids: Container[str]) -> set[tuple[str, str]]:
    """The `used_claims` of the pods with these uids; reads all pods, in slices."""
    found, budget = set[tuple[str, str]](), TurnBudget()
    for pod in view.all(kinds.POD):
        if uid(pod) in uids:
            found |= used_claims((pod,))
        await budget.pause_if_due()
    return found


class ClaimUsageMonitor:
    """Warns of claims that hold more than they requested: once, and again after they were below it."""

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._warned: set[str] = set()

    async def check_sizes(self, view: View, directories: VolumeDirectories) -> None:
        """Measures every claim that has a directory, and records the warnings."""
        existing = set(directories.claim_directories())
        measured = [c for c in view.all(CLAIM) if claim_directory(c) in existing and dig(c, "status.capacity.storage")]
        sizes = await asyncio.to_thread(
            lambda: [disk_usage(directories.claim_path(claim_directory(c))) for c in measured]
        )
        for claim, size in zip(measured, sizes, strict=True):
            capacity = str(dig(claim, "status.capacity.storage"))
            if size <= integer_value(capacity):
                self._warned.discard(uid(claim))
            elif uid(claim) not in self._warned:
                self._warned.add(uid(claim))
                text = f"the claim holds {format_bytes(size)} but requested {capacity}: rowlock does not enforce this; elsewhere the volume would be full"
                self._record(Record(claim, "Warning", "ClaimOverCapacity", text, "kubelet"))


async def remove_unused(
    api: Api, directories: VolumeDirectories, claims_in_use: Collection[tuple[str, str]], now: float
) -> None:
    """Removes directories whose claim is deleted and no longer used. `now`: seconds since the epoch."""
    found = directories.claim_directories()
    directories.known_claims.intersection_update(found)
    for directory in found:
        claim_namespace, claim_name, claim_uid = directory.split("_", 2) if directory.count("_") == 2 else ("", "", "")
        if not claim_uid:
            continue
        if await _claim_exists(api, claim_namespace, claim_name, claim_uid):
            directories.known_claims.add(directory)
            directories.claim_mark(directory).unlink(missing_ok=True)
        elif (claim_namespace, claim_name) not in claims_in_use and (
            directory in directories.known_claims or await asyncio.to_thread(_is_expired, directories, directory, now)
        ):
            directories.remove_claim(directory)
            directories.known_claims.discard(directory)
            directories.claim_mark(directory).unlink(missing_ok=True)


def _is_expired(directories: VolumeDirectories, directory: str, now: float) -> bool:
    """Whether the directory of an unknown claim has been unused for long enough. The first look is recorded, and logged."""
    mark = directories.claim_mark(directory)
    if not mark.exists():
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
        os.utime(mark, (now, now))
        log.warning(
            "%s belongs to a claim that this cluster does not know; it is removed on %s, if nothing is written to it before",
            directories.claim_path(directory), time.strftime("%d %B %Y", time.gmtime(now + RETENTION_SECONDS)),
        )  # fmt: skip
    if now - mark.stat().st_mtime <= RETENTION_SECONDS:
        return False
    newest = newest_change(directories.claim_path(directory))  # this scans all of it, so only when it may have expired
    os.utime(mark, (newest, newest))
    return now - newest > RETENTION_SECONDS


async def _claim_exists(api: Api, claim_namespace: str, claim_name: str, claim_uid: str) -> bool:
    try:
        return uid(await api.get(CLAIM, claim_namespace, claim_name)) == claim_uid
    except NotFound:
        return False
