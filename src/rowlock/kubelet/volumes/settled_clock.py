"""A clock for code that deletes data for good: it follows a jump of the wall clock only after the clock has stayed there.

A wall clock may be set forward for a moment: by hand, by a machine that wakes up, by a time server that is wrong. Data
that only seems old then must not be deleted.
"""

import time
from collections.abc import Callable

_SLACK = 60.0
"""Seconds that the wall clock may have gained since the last look: time servers correct clocks by less."""
SETTLING_SECONDS = 3600.0


def read_steady_clock() -> float:
    """Seconds that nobody sets, with those that the machine has slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SettledClock:
    """A wall clock without its jumps forward, until one has lasted for an hour. It has to be looked at now and then."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float] = read_steady_clock) -> None:
        self._wall, self._steady = wall, steady
        self._offset: float | None = None
        """Of the wall clock from the steady one, as it is believed."""
        self._ahead_since: float | None = None

    def __call__(self) -> float:
        wall, steady = self._wall(), self._steady()
        offset = wall - steady
        if self._offset is None or offset <= self._offset + _SLACK:  # set back: all seems to be younger, and stays
            self._offset, self._ahead_since = offset, None
        elif self._ahead_since is None:
            self._ahead_since = steady
        elif steady - self._ahead_since >= SETTLING_SECONDS:
            self._offset, self._ahead_since = offset, None
        return steady + self._offset
