"""Slows password guessing: failed logins are counted in time windows, per address, per account, or per pair of both."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from rowlock.errors import TooManyRequests

WINDOW_S = 60.0
"""Seconds for which failures are held against an address."""
MAX_FAILURES = 100
_MAX_ENTRIES = 10_000
"""Most keys kept. Beyond it, expired keys are dropped, and if that is not enough the half with the fewest failures: an attacker who
fails under ten thousand names must not displace the names with many failures."""


class LoginLimits:
    """Counts failures of each key: at most `max_failures` in `window_s` seconds. `clock` gives Unix seconds."""

    def __init__(
        self, clock: Callable[[], float], max_failures: int = MAX_FAILURES, window_s: float = WINDOW_S
    ) -> None:
        self._clock, self._max_failures, self._window_s = clock, max_failures, window_s
        self._failures: dict[Hashable, tuple[float, int]] = {}

    def check(self, key: Hashable) -> None:
        """Raises TooManyRequests if this key has failed too often. Call it before comparing the password."""
        now = self._clock()
        began, count = self._failures.get(key, (now, 0))
        if began > now:  # the clock was set back: never wait longer than one window
            began = now
            self._failures[key] = (began, count)
        if count >= self._max_failures and now - began < self._window_s:
            wait = max(1, int(began + self._window_s - now))
            raise TooManyRequests(f"too many logins failed ({count}): try again in {wait} s", retry_after=wait)

    def count_failure(self, key: Hashable) -> None:
        """Count one failure of this key."""
        now = self._clock()
        if len(self._failures) >= _MAX_ENTRIES:
            self._failures = {k: v for k, v in self._failures.items() if now - v[0] < self._window_s}
            if len(self._failures) >= _MAX_ENTRIES:
                by_count = sorted(self._failures.items(), key=lambda item: item[1][1], reverse=True)
                self._failures = dict(by_count[: _MAX_ENTRIES // 2])
        began, count = self._failures.get(key, (now, 0))
        self._failures[key] = (now, 1) if now - began >= self._window_s else (began, count + 1)

    def forgive(self, key: Hashable) -> None:
        """Take back one failure: attempts are counted before the outcome is known, and this one succeeded."""
        began, count = self._failures.get(key, (0.0, 0))
        if count > 1:
            self._failures[key] = (began, count - 1)
        else:
            self._failures.pop(key, None)

    def forget(self, key: Hashable) -> None:
        """Drop all failures of a key, for example because the account has a new password."""
        self._failures.pop(key, None)
