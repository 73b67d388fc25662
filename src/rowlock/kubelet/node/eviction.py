"""Finds pods that use more disk than they may; the messages are a kubelet's.

Two limits count: `sizeLimit` of an emptyDir on disk (one in memory is held by its tmpfs) and `ephemeral-storage` of a
container or of all of them: logs, the copy of the image's files, the pod's own directory and its emptyDirs on disk.
Measured now and then; a pod over a limit is killed at once and Failed, reason Evicted.
"""

from collections.abc import Callable

from rowlock.kubelet.files.beneath import disk_usage
from rowlock.kubelet.pod.directory import WORK_DIRECTORY, PodDirectories
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.quantity import integer_value

STORAGE = "ephemeral-storage"
SizeOf = Callable[[str], int]
"""A path below the pod's directory → bytes on disk."""


def has_storage_limit(pod: PodSpec) -> bool:
    """Whether the pod has any limit to check."""
    return bool(_volume_limits(pod)) or any(_storage_limit(c) for c in pod.containers)


def _volume_limits(pod: PodSpec) -> dict[str, str]:
    """emptyDirs on disk with a limit: name → limit as it is written."""
    sources = {v["name"]: v.get("emptyDir") or {} for v in pod.volumes if "emptyDir" in v}
    return {n: str(s["sizeLimit"]) for n, s in sources.items() if s.get("sizeLimit") and s.get("medium") != "Memory"}


def _storage_limit(container: ContainerSpec) -> str:
    return str(container.limits.get(STORAGE) or "")


def eviction_message(pod: PodSpec, size_of: SizeOf) -> str:
    """Why the pod is to be evicted; "" = it is within its limits."""
    for volume, limit in _volume_limits(pod).items():
        if size_of(f".volumes/{volume}") > integer_value(limit) > 0:
            return f'Usage of EmptyDir volume "{volume}" exceeds the limit "{limit}". '
    for container in pod.containers:
        if _storage_limit(container) and size_of(container.name) > integer_value(_storage_limit(container)):
            text = f"exceeded its local ephemeral storage limit {_quote_limit(_storage_limit(container))}. "
            return f"Container {container.name} {text}"
    limits = [_storage_limit(c) for c in pod.main_containers]
    total = sum(integer_value(limit) for limit in limits if limit)
    if limits and all(limits) and _total_usage(pod, size_of) > total:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {limits[0] if len(limits) == 1 else total}. "
    return ""


def _quote_limit(limit: str) -> str:
    return f'"{limit}"'


def _total_usage(pod: PodSpec, size_of: SizeOf) -> int:
    """Bytes on disk of all that is removed with the pod."""
    disks = [v["name"] for v in pod.volumes if "emptyDir" in v and (v["emptyDir"] or {}).get("medium") != "Memory"]
    return (
        size_of(WORK_DIRECTORY)
        + sum(size_of(c.name) for c in pod.all_containers)
        + sum(size_of(f".volumes/{d}") for d in disks)
    )


def size_reader(directories: PodDirectories, uid: str) -> SizeOf:
    """Measures paths below the pod's directory; missing ones have size 0."""
    return lambda path: disk_usage(str(directories.pod_directory(uid) / path))
