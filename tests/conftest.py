"""For all tests: what they start is started as a terminal starts it."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A background job of a script ignores Ctrl-C, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
