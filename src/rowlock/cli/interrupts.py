"""Make sure that Ctrl-C ends a command that waits for its server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def notice_interrupts(interval: float = 0.5) -> Iterator[None]:
    """Inside this context the main thread notices an interrupt after at most `interval` seconds.

    A signal that arrives between Python's check and the start of a system call only sets a flag, which Python checks when
    the call ends. For a follower of a quiet log that may take hours. A periodic timer signal ends the call earlier."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    old_handler = signal.signal(signal.SIGALRM, _wake_up)
    old_timer = signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old_timer)
        signal.signal(signal.SIGALRM, old_handler)


def _wake_up(*_: object) -> None:
    """Does nothing: the signal itself interrupts the system call."""
