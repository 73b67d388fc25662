"""For all tests: what they start is started as a terminal starts it."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A background job of a script ignores Ctrl-C, one under nohup the end of its terminal; and so would every process
    that a test starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
