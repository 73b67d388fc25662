"""Parents and children, as the kernel tells: who is below a process, and how its children ended. Standard library only."""

import contextlib
import os


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, parents first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children(waiting.pop())
        found += below
        waiting += below
    return found


def children(pid: int) -> list[int]:
    """The processes that `pid` is the parent of."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ended while we looked
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
    return found


def reap(child: int) -> tuple[bool, int | None]:
    """Collects the dead: are children left, and the wait status of `child` if it was among them."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, found
        if pid == 0:
            return True, found
        if pid == child:
            found = status


def ending(status: int) -> tuple[int, int]:
    """A wait status as exit code (128+N for signal N) and signal."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return 128 + number if number else os.WEXITSTATUS(status), number
