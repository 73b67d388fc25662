"""Namespaces for System V IPC and POSIX message queues, one per pod; and whether programs can be isolated here.
The pod host makes them and holds them, as it does with networks (`netns.py`). Standard library only; Linux only.
"""

import contextlib
import os

from rowlock.kubelet.mounts import calls

_SELF = "/proc/self/ns/ipc"


class PodIpc:
    """The pods' IPC namespaces, which the pod host owns."""

    def __init__(self) -> None:
        """In a user namespace the pod host first takes a namespace of its own, since it may not return to the machine's."""
        self._namespaces: dict[str, int] = {}
        self._home = -1
        with contextlib.suppress(OSError):  # not Linux, or not allowed: `probe_isolation` reports it
            home = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
            try:
                calls.setns(home, calls.NEWIPC)
            except PermissionError:
                calls.unshare(calls.NEWIPC)
                os.close(home)
                home = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
            self._home = home

    def namespace_of(self, uid: str) -> int:
        """The pod's namespace as a file descriptor; made at the first call. Raises OSError where it cannot be made."""
        if uid not in self._namespaces:
            calls.unshare(calls.NEWIPC)
            try:
                self._namespaces[uid] = os.open(_SELF, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                calls.setns(self._home, calls.NEWIPC)
        return self._namespaces[uid]

    def adopt(self, uid: str, shim: int) -> None:
        """Takes over a pod of a previous pod host, through one of its shims."""
        path = f"/proc/{shim}/ns/ipc"
        if self._home >= 0 and uid not in self._namespaces and os.stat(path).st_ino != os.stat(_SELF).st_ino:
            self._namespaces[uid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, uid: str) -> None:
        """Closes the namespace of a deleted pod: its IPC objects go with the last program."""
        fd = self._namespaces.pop(uid, None)
        if fd is not None:
            os.close(fd)


def enter_namespace(fd: int) -> None:
    """Moves the calling shim into its pod's namespace; closes `fd`. Raises OSError."""
    calls.setns(fd, calls.NEWIPC)
    os.close(fd)


def probe_isolation() -> str:
    """Why programs cannot have processes, IPC and /dev/shm of their own here; "" when they can. Tried in a child."""
    if not calls.is_linux():
        return "PID namespaces are Linux's"

    def mount_own() -> None:
        calls.unshare_mounts()
        calls.mount_proc()
        calls.mount_shared_memory(1 << 16)

    try:
        problem = calls.try_in_child(mount_own, calls.NEWPID | calls.NEWIPC)
    except OSError as error:
        return f"a PID namespace cannot be made: {error.strerror}"
    return problem and f"its /proc and /dev/shm cannot be mounted: {problem}"
