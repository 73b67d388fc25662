"""The lowest priority, for a warm parent that imports before a program asks for it, and back. Standard library only.

Two things count on Linux: the niceness of a process, which only some may lower again, and that of its session (`autogroup`), which
everybody may. Where the kernel has the second, the first holds against processes of the same session alone.
"""

import contextlib
import os
import time

LOWEST = 19
_NORMAL = 0
_PAUSE, _ATTEMPTS = 0.05, 40
"""The kernel takes a change of a session's priority by a user in a tenth of a second; others must be tried again."""


def lower() -> None:
    """Gives the calling process, which leads a session and has one thread, the lowest priority that `raise_again` can undo."""
    _set_session_priority(os.getpid(), LOWEST)
    if _may_return():
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST)


def raise_again(pid: int) -> None:
    """Gives a process that has lowered its priority the one that programs have; no effect on one that has ended."""
    _set_session_priority(pid, _NORMAL)
    with contextlib.suppress(OSError):  # it has ended; or it has kept its niceness, because it could not return
        if os.getpriority(os.PRIO_PROCESS, pid) == LOWEST:
            os.setpriority(
                os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, os.getppid() if pid == os.getpid() else 0)
            )


def _may_return() -> bool:
    """Whether this process may lower its niceness, tried in a fork: a right that it has in a user namespace is none here."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(OSError):
            before = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
            os.setpriority(os.PRIO_PROCESS, 0, before)
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _set_session_priority(pid: int, priority: int) -> None:
    for _ in range(_ATTEMPTS):
        try:
            with open(f"/proc/{pid}/autogroup", "w") as file:
                file.write(str(priority))
            return
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:  # it has ended, or the kernel has no such priority
            return
