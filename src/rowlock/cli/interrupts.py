"""Make sure that Ctrl-C ends a command that waits for its server, and that a command told to end cleans up first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


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


@contextmanager
def clean_up_when_told_to_end() -> Iterator[None]:
    """Inside this context SIGTERM (`kill`, `timeout`) and SIGHUP (a closed terminal) raise SystemExit with 128 + the signal's
    number, so that `finally` is reached. A signal that is ignored (`nohup`) stays so."""
    told = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, _exit) for number in told}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _wake_up(*_: object) -> None:
    """Does nothing: the signal itself interrupts the system call."""
