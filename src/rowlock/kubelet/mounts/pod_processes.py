"""PID namespaces of pods whose containers share one (`shareProcessNamespace`), each held by a process 1 that does nothing.

Like a kubelet's pause container it adopts the orphans of the pod and reaps them. Shims stay outside, and enter the namespace
only for their programs. Standard library only; Linux only.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable

from rowlock.kubelet.mounts import calls

_SELF = "/proc/self/ns/pid"
_LOOK_MS = 1000


class PodProcesses:
    """The pods' PID namespaces, which the pod host owns."""

    def __init__(self, close_other_fds: Callable[..., None], prepare: Callable[[], None]) -> None:
        """`prepare` runs in a new process 1, before it waits."""
        self._close_other_fds, self._prepare = close_other_fds, prepare
        self._namespaces: dict[str, int] = {}
        self._pipes: dict[str, int] = {}

    def namespace_of(self, uid: str) -> int:
        """The pod's namespace as a file descriptor; made at the first call, and again if its process 1 has died. Raises OSError."""
        if uid in self._namespaces and not _takes_processes(self._namespaces[uid]):
            self.forget(uid)
        if uid not in self._namespaces:
            pid, self._pipes[uid] = self._start_holder()
            self._namespaces[uid] = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        return self._namespaces[uid]

    def _start_holder(self) -> tuple[int, int]:
        """Forks a new process 1. Returns its pid, and the pipe by which it learns of the pod's end."""
        reader, writer = os.pipe()
        try:
            pid = calls.fork_into(calls.NEWPID)
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            self._close_other_fds(reader)
            self._prepare()
            _hold_namespace(reader)
        os.close(reader)
        return pid, writer

    def adopt(self, uid: str, shim: int) -> None:
        """Takes over a pod of a previous pod host, through one of its shims."""
        own, among, below = (
            os.stat(p).st_ino for p in (_SELF, f"/proc/{shim}/ns/pid", f"/proc/{shim}/ns/pid_for_children")
        )
        if own == among != below and uid not in self._namespaces:
            self._namespaces[uid] = os.open(f"/proc/{shim}/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, uid: str) -> None:
        """Ends the namespace of a deleted pod: the kernel kills what is left in it."""
        if (fd := self._namespaces.pop(uid, None)) is not None:
            os.close(fd)
        if (pipe := self._pipes.pop(uid, None)) is not None:
            with contextlib.suppress(OSError):
                os.write(pipe, b".")
            os.close(pipe)


def enter_namespace(fd: int) -> None:
    """Puts what the calling process forks from now on into the namespace. Closes `fd`. Raises OSError."""
    calls.setns(fd, calls.NEWPID)
    os.close(fd)


def _takes_processes(fd: int) -> bool:
    """Whether its process 1 is alive. Tried in a child, since entering the namespace cannot be undone."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            calls.setns(fd, calls.NEWPID)
            if (grandchild := os.fork()) == 0:
                os._exit(0)
            os.waitpid(grandchild, 0)
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _hold_namespace(reader: int) -> None:
    """In process 1 of the namespace: holds it until the pod host says that the pod is deleted. If the pod host dies, until no
    other process is left in it."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps for us
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.poll()
    if not os.read(reader, 1):
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(-1, 0)
                select.poll().poll(_LOOK_MS)
    os._exit(0)
