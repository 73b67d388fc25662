"""A clock for code that deletes data permanently: it follows a forward jump of the wall clock only after an hour.

A wall clock may be set forward for a moment: by hand, when a machine wakes up, by a wrong time server. Data that only
seems old then must not be deleted.
"""

import time
from collections.abc import Callable

_SLACK = 60.0
"""Seconds that the wall clock may have gained since the last look: time servers correct clocks by less."""
SETTLING_SECONDS = 3600.0


def read_steady_clock() -> float:
    """Seconds of a clock that cannot be set; they include the time that the machine was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SettledClock:
    """A wall clock without forward jumps, until one has lasted for an hour. It must be called regularly."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float] = read_steady_clock) -> None:
        self._wall, self._steady = wall, steady
        self._offset: float | None = None
        """The accepted offset of the wall clock from the steady one."""
        self._ahead_since: float | None = None

    def __call__(self) -> float:
        wall, steady = self._wall(), self._steady()
        offset = wall - steady
        if self._offset is None or offset <= self._offset + _SLACK:  # set back: data seems younger and stays
            self._offset, self._ahead_since = offset, None
        elif self._ahead_since is None:
            self._ahead_since = steady
        elif steady - self._ahead_since >= SETTLING_SECONDS:
            self._offset, self._ahead_since = offset, None
        return steady + self._offset
