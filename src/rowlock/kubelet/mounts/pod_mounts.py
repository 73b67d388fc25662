"""The pods' memory volumes, in mount namespaces that the pod host holds."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rowlock.kubelet.mounts import calls

_NEWNS = 0x20000


class PodMounts:
    """The pods' memory volumes, which the pod host owns: a mount namespace per pod that has any."""

    def __init__(self) -> None:
        self._namespaces: dict[str, int] = {}

    def namespace_of(self, uid: str, memory_volumes: Sequence[Mapping[str, Any]]) -> int:
        """The pod's namespace as a file descriptor; made at the first call. `memory_volumes`: {path, size (0 = half the memory)}.
        Raises OSError where it cannot be made."""
        if uid not in self._namespaces:
            own_namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                calls.unshare(_NEWNS)
                try:
                    self._namespaces[uid] = self._make_namespace(memory_volumes)
                finally:
                    calls.setns(own_namespace, _NEWNS)
            finally:
                os.close(own_namespace)
        return self._namespaces[uid]

    def _make_namespace(self, memory_volumes: Sequence[Mapping[str, Any]]) -> int:
        calls.make_private()
        for volume in memory_volumes:
            size = f",size={volume['size']}" if volume["size"] else ""
            calls.sys_mount("tmpfs", str(volume["path"]), "tmpfs", 2 | 4, f"mode=1777{size}")
        return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def adopt(self, uid: str, shim: int) -> None:
        """Takes over a pod of a previous pod host, through one of its shims."""
        shim_namespace = f"/proc/{shim}/ns/mnt"
        if uid not in self._namespaces and os.stat(shim_namespace).st_ino != os.stat("/proc/self/ns/mnt").st_ino:
            self._namespaces[uid] = os.open(shim_namespace, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, uid: str) -> None:
        """Closes the namespace of a deleted pod: its memory is freed with the last program that holds it."""
        fd = self._namespaces.pop(uid, None)
        if fd is not None:
            os.close(fd)


def leave_pod_namespaces() -> None:
    """For a pod host that joined its fabric through a shim, perhaps in its pod's namespace: enters a namespace of its own,
    without any pod's memory volumes."""
    calls.unshare(_NEWNS)
    calls.make_private()
    with open("/proc/self/mountinfo") as file:
        rows = [line.split() for line in file]
    for row in rows:
        if "/.volumes/" in row[4] and row[row.index("-") + 1] == "tmpfs":
            calls.detach(row[4].replace("\\040", " "))


def enter_namespace(fd: int) -> None:
    """Moves the calling shim into its pod's namespace. Raises OSError."""
    calls.setns(fd, _NEWNS)
