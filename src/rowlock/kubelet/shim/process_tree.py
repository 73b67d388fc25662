"""The process tree as the kernel reports it: what is below a process, and how its children ended. Standard library only."""

import contextlib
import os

_FIRST_PID, _PID_STRIDE = 300, 1031
"""Where the kernel begins again after the last pid; the distance between the first pids of two pods."""


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, parents first."""
    pids: list[int] = []
    unvisited = [pid]
    while unvisited:
        below = children(unvisited.pop())
        pids += below
        unvisited += below
    return pids


def children(pid: int) -> list[int]:
    """The children of `pid`."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += [int(child) for child in file.read().split()]
    return pids


def living_children(pid: int) -> list[int]:
    """The children of `pid` that have not ended."""
    return [child for child in children(pid) if _status_field(child, b"State:") not in (b"", b"(zombie)", b"(dead)")]


def inner_pid(pid: int) -> int:
    """The pid of a process in its own PID namespace; the given pid if it has ended."""
    return int(_status_field(pid, b"NSpid:") or pid)


def handles_signal(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal; False if it has ended."""
    return bool(int(_status_field(pid, b"SigCgt:") or b"0", 16) >> (number - 1) & 1)


def dies_of_signal(pid: int, number: int) -> bool:
    """Whether a signal whose default is to terminate would end it; False if it handles or ignores the signal, or has ended."""
    ignored = _status_field(pid, b"SigIgn:")
    return bool(ignored) and not int(ignored, 16) >> (number - 1) & 1 and not handles_signal(pid, number)


def _status_field(pid: int, name: bytes) -> bytes:
    """The last word of a line of /proc/PID/status; b"" if the process has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(name):
                    return line.split()[-1]
    return b""


def reap_children(child: int) -> tuple[bool, int | None]:
    """Reaps ended children. Returns whether others are left, and the wait status of `child` if it was among them."""
    child_status: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, child_status
        if pid == 0:
            return True, child_status
        if pid == child:
            child_status = status


def decode_wait_status(status: int) -> tuple[int, int]:
    """A wait status as exit code (128+N for signal N) and signal."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return 128 + number if number else os.WEXITSTATUS(status), number


def skip_pids(last: int) -> None:
    """In a PID namespace of its own: makes the next process that this one forks `last` + 1, where the kernel allows that.

    Programs name themselves by host name and pid: torchrun's nodes, files of TensorBoard, workers of Dask. If pods share a host name and
    all are process 2, these names collide: two nodes of torchrun wait for each other for ever. Others name what they leave in /tmp, which
    pods of this machine share, by the pid alone: of two daemons of mpirun with one pid (`/tmp/prted.5`) one ends."""
    with contextlib.suppress(OSError):  # a kernel without CONFIG_CHECKPOINT_RESTORE
        fd = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(last).encode())
        finally:
            os.close(fd)


def distant_pid(pid: int) -> int:
    """A pid far from those of pods whose shims have pids near this one: each pod may start hundreds of processes."""
    return _FIRST_PID + pid * _PID_STRIDE % (_PID_LIMIT - 2 * _FIRST_PID) if _PID_LIMIT else pid


def _read_pid_limit() -> int:
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/sys/kernel/pid_max", "rb") as file:
            return int(file.read())
    return 0


_PID_LIMIT = _read_pid_limit()
"""The kernel's limit of pids; 0 = unknown. Read once, in the pod host: reading it would cost each shim pages of memory."""
