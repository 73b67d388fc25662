"""No Ctrl-C is lost while a command waits for its server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def notice_interrupts(interval: float = 0.5) -> Iterator[None]:
    """Within, the main thread notices an interrupt after `interval` seconds at the latest.

    One that comes between Python's last look and the start of a system call only sets a flag, and nobody looks at it
    before the call ends: a follower of a quiet log waits for hours. A timer's signal ends the call, and Python looks."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's business
        return
    old_handler = signal.signal(signal.SIGALRM, _wake_up)
    old_timer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old_timer)
        signal.signal(signal.SIGALRM, old_handler)


def _wake_up(*_: object) -> None:
    """Nothing: that the signal came is enough."""
