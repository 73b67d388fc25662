"""Makes Ctrl-C end a command that waits for its server, and lets a command that gets SIGTERM clean up first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_AT_ONCE = 1e-3
"""Seconds: 0 would disarm the timer."""


@contextmanager
def notice_interrupts(interval: float = 0.5) -> Iterator[None]:
    """Inside this context the main thread notices an interrupt after at most `interval` seconds.

    A signal that arrives between Python's check and the start of a system call only sets a flag, which Python checks when
    the call ends. When following a quiet log, that may take hours. A periodic timer signal ends the call earlier. An
    alarm that other code has set still fires at its time."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    remaining, period = signal.getitimer(signal.ITIMER_REAL)
    end = (
        time.monotonic() + remaining if remaining else None
    )  # an alarm set by other code, which must still fire at its time

    def wake_up(number: int, frame: FrameType | None) -> None:
        """Forward the alarm of other code when it is due. (The signal itself has interrupted the system call.)"""
        nonlocal end
        if end is None or time.monotonic() < end:
            return
        end = end + period if period else None
        if callable(old_handler):
            old_handler(number, frame)
        elif old_handler is signal.SIG_DFL:  # `perl -e 'alarm 5; exec @ARGV' rowlock logs -f train`
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    old_handler = signal.signal(signal.SIGALRM, wake_up)
    signal.setitimer(signal.ITIMER_REAL, interval, interval)
    try:
        yield
    finally:
        left = 0.0 if end is None else max(end - time.monotonic(), _AT_ONCE)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old_handler)
        signal.setitimer(signal.ITIMER_REAL, left, period)


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
