"""Parents and children, as the kernel tells: who is below a process, and how its children ended. Standard library only."""

import contextlib
import os

_FIRST_PID, _PID_STRIDE = 300, 1031
"""Below the first one the kernel looks for no free pid when it begins again; between the first pids of two pods."""


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
    """The processes that `pid` is the parent of."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += [int(child) for child in file.read().split()]
    return pids


def living_children(pid: int) -> list[int]:
    """Those of them that have not ended."""
    return [child for child in children(pid) if _status_field(child, b"State:") not in (b"", b"(zombie)", b"(dead)")]


def inner_pid(pid: int) -> int:
    """The pid that a process of this machine has in the PID namespace that it lives in; the same one where it has ended."""
    return int(_status_field(pid, b"NSpid:") or pid)


def handles_signal(pid: int, number: int) -> bool:
    """Has a process a handler for this signal? False where it has ended."""
    return bool(int(_status_field(pid, b"SigCgt:") or b"0", 16) >> (number - 1) & 1)


def dies_of_signal(pid: int, number: int) -> bool:
    """Would it be ended by a signal whose default that is? False where it handles or ignores it, or has ended."""
    ignored = _status_field(pid, b"SigIgn:")
    return bool(ignored) and not int(ignored, 16) >> (number - 1) & 1 and not handles_signal(pid, number)


def _status_field(pid: int, name: bytes) -> bytes:
    """The last word of a line of /proc/PID/status; nothing where the process has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(name):
                    return line.split()[-1]
    return b""


def reap_children(child: int) -> tuple[bool, int | None]:
    """Collects the dead: are children left, and the wait status of `child` if it was among them."""
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
    """In a PID namespace of its own: the next process that this one forks is `last` + 1, where the kernel allows that.

    Programs name themselves by host name and pid: torchrun's nodes, files of TensorBoard, workers of Dask. Where pods have one host name,
    all of them as process 2 would be one: two nodes of torchrun wait for each other for ever. Others name what they leave in /tmp, which pods
    of this machine share, by the pid alone: of two daemons of mpirun with one pid (`/tmp/prted.5`) one ends."""
    with contextlib.suppress(OSError):  # a kernel without checkpoints of processes
        fd = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(last).encode())
        finally:
            os.close(fd)


def distant_pid(pid: int) -> int:
    """A pid far from those that pods get whose shims have pids near this one: each may start hundreds of processes."""
    return _FIRST_PID + pid * _PID_STRIDE % (_PID_LIMIT - 2 * _FIRST_PID) if _PID_LIMIT else pid


def _read_pid_limit() -> int:
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/sys/kernel/pid_max", "rb") as file:
            return int(file.read())
    return 0


_PID_LIMIT = _read_pid_limit()
"""The kernel's; 0 = not known. Read once, in the pod host: to read it costs each shim pages of memory."""
