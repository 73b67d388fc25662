"""Limits on requests to an API server: a token bucket, back-off between retries, and a limit of concurrent handshakes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Limits:
    """`qps` requests a second with bursts of `burst`; 0 = no limit (the server has its own fairness)."""

    qps: float = 50.0
    burst: int = 100
    max_in_flight: int = 64
    """Maximum of concurrent requests without streams; each needs a connection with a TLS handshake."""
    max_tries: int = 5
    """How often a safe request is sent before its error is raised."""
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    """Timeouts in seconds of connecting, and of each read of an answer that is not endless."""
    watch_retry_seconds: float = 30.0
    """How long a watch tries to resume a broken stream before it raises."""


class TokenBucket:
    """A token bucket that refills at `qps`. Callers wait for tokens in the order in which they come."""

    def __init__(
        self,
        qps: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1.0 / qps if qps > 0 else 0.0
        self._slack = self._interval * max(0, burst - 1)
        self._clock, self._sleep = clock, sleep
        self._next_due = clock() - self._slack
        """The time at which the next token is due when the bucket is empty."""

    def reserve(self) -> float:
        """Reserve the next token, as a limiter of golang.org/x/time/rate does. Returns the seconds until it is available."""
        if not self._interval:
            return 0.0
        now = self._clock()
        self._next_due = max(self._next_due, now - self._slack)
        delay, self._next_due = self._next_due - now, self._next_due + self._interval
        return max(0.0, delay)

    async def take(self) -> None:
        """Wait until a request may be sent; returns at once without a limit. client-go: `flowcontrol.RateLimiter.Wait`."""
        if delay := self.reserve():
            await self._sleep(delay)


@dataclass(slots=True)
class Backoff:
    """Waits that double up to `maximum`; each is a random value between its half and the whole, so that clients spread
    out."""

    first: float = 0.1
    maximum: float = 10.0
    random: Callable[[], float] = random.random
    _next: float = field(default=0.0, init=False)

    def next_delay(self) -> float:
        """The next wait in seconds."""
        self._next = min(self.maximum, max(self.first, self._next * 2))
        return self._next * (0.5 + self.random() / 2)

    def reset(self) -> None:
        """Begin again with the first wait, after a success."""
        self._next = 0.0


class HandshakeLimit:
    """Limits concurrent handshakes to `at_once`: a TLS handshake blocks the event loop for a millisecond, and a server that starts answers
    all waiting ones at once. If none completes, one more begins every `patience` seconds, so that hanging ones do not block others for
    ever. Use `async with limit:` around a handshake."""

    def __init__(self, at_once: int, patience: float) -> None:
        self._places, self._patience = asyncio.Semaphore(at_once), patience
        self._waiting = 0
        self._surplus = 0
        """Handshakes that began beyond the limit; as many of those that end next do not free a place."""

    async def __aenter__(self) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._waiting * self._patience):
                await self._places.acquire()
        except TimeoutError:
            self._surplus += 1
        finally:
            self._waiting -= 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._places.release()
