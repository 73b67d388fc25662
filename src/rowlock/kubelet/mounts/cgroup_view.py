"""A container's /sys/fs/cgroup: programs that read their limits there (JVM, .NET, Go, Ray) see the container's, not the machine's.

As a container runtime shows it: the container's own group where the hierarchy begins, read-only. In version 2 a cgroup namespace
also makes `/proc/self/cgroup` begin there; in version 1 runtimes leave that as it is. Standard library only; Linux only.
"""

import contextlib
import os
from collections.abc import Sequence

from rowlock.kubelet.mounts import calls

_NEWCGROUP = 0x02000000
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class CgroupView:
    """The control groups of one container as detached mounts, which outlive a change of the root."""

    def __init__(self, groups: Sequence[tuple[str, str]], *, version: str) -> None:
        """Called in a process of these groups. `groups`: the directory of each, and where its hierarchy is mounted. What the kernel
        refuses is left out: the limits are enforced all the same, and `probe_view` has reported it."""
        self._trees: list[tuple[int, str]] = []
        with contextlib.suppress(OSError):
            if version == "v2" and groups:
                calls.unshare(_NEWCGROUP)
        for directory, point in groups:
            with contextlib.suppress(OSError):
                tree = calls.detached_copy(directory)
                try:
                    calls.make_read_only(tree)
                except OSError:  # better none than a writable one
                    os.close(tree)
                    raise
                self._trees.append((tree, point))

    def __bool__(self) -> bool:
        return bool(self._trees)

    def attach(self) -> None:
        """Mounts the groups in the container's mount namespace, after its root is in place."""
        for tree, point in self._trees:
            with contextlib.suppress(OSError):  # the image lacks this directory
                place = os.open(point, _DIRECTORY)  # in version 1 it may be a link: cpu -> cpu,cpuacct
                try:
                    calls.attach(tree, place)
                finally:
                    os.close(place)
            os.close(tree)
        self._trees = []


def probe_view(directory: str, point: str, version: str) -> str:
    """Why a container cannot see its own limits here; "" when it can. `directory`: any group of the hierarchy that is mounted at
    `point`. Tried in a child."""

    def mount_view() -> None:
        if version == "v2":
            calls.unshare(_NEWCGROUP)
        calls.unshare_mounts()
        tree = calls.detached_copy(directory)
        calls.make_read_only(tree)
        calls.attach(tree, os.open(point, _DIRECTORY))

    problem = calls.try_in_child(mount_view)
    return problem and f"its control group cannot be mounted at {point}: {problem}"
