"""How hard we lean on an API server: a token bucket for all requests, and waits between tries that spread out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """`qps` requests a second with bursts of `burst`; 0 = as fast as the server lets us (it has its own fairness)."""

    qps: float = 50.0
    burst: int = 100
    max_in_flight: int = 64
    """Requests that wait for an answer at once, besides streams: each takes a connection, and with it a TLS handshake."""
    max_tries: int = 5
    """How often a safe request is sent before its error is the answer."""
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    """Seconds that a connection, and an answer that is no stream, may take."""
    watch_retry_seconds: float = 30.0
    """How long a watch tries to pick up a broken stream before it raises."""


class TokenBucket:
    """Refills at `qps`; who comes when it is empty waits for its own token, first come first served."""

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
        """When the next token is due if nobody saves any up."""

    async def take(self) -> None:
        """Wait until a request may go out; without a limit, not at all. client-go: `flowcontrol.RateLimiter.Wait`."""
        if not self._interval:
            return
        now = self._clock()
        self._next_due = max(self._next_due, now - self._slack)
        delay, self._next_due = self._next_due - now, self._next_due + self._interval
        if delay > 0:
            await self._sleep(delay)


@dataclass(slots=True)
class Backoff:
    """Waits that double up to `maximum`, each drawn between half of it and all of it, so that crowds disperse."""

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
