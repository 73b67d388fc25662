"""Who guesses is slowed down: failed logins are counted for each address, so that nobody can lock out another."""

from __future__ import annotations

from collections.abc import Callable

from rowlock.errors import TooManyRequests

WINDOW_S = 60.0
"""Seconds for which failures are held against an address."""
MAX_FAILURES = 100
_MAX_ENTRIES = 10_000
"""Addresses that are remembered; then those whose time is over are forgotten, or all."""


class LoginLimits:
    """Counts failures in windows of a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, int]] = {}

    def check(self, address: str) -> None:
        """Raises TooManyRequests where this address has failed too often; nothing is compared then."""
        now = self._clock()
        began, count = self._failures.get(address, (now, 0))
        if count >= MAX_FAILURES and now - began < WINDOW_S:
            wait = max(1, int(began + WINDOW_S - now))
            raise TooManyRequests(f"{count} logins failed within a minute: try again in {wait} s", retry_after=wait)

    def count_failure(self, address: str) -> None:
        """One more."""
        now = self._clock()
        if len(self._failures) >= _MAX_ENTRIES:
            self._failures = {k: v for k, v in self._failures.items() if now - v[0] < WINDOW_S}
            if len(self._failures) >= _MAX_ENTRIES:
                self._failures.clear()
        began, count = self._failures.get(address, (now, 0))
        self._failures[address] = (now, 1) if now - began >= WINDOW_S else (began, count + 1)
