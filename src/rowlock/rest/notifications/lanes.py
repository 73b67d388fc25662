"""The queue of notifications: tried again with limits, and such that a dead or slow receiver keeps nobody else waiting.

A lane is one namespace's way to one receiver; its messages go one after the other. A namespace has at most two connections at a time and
200 messages that wait, whatever it does. What is a quarter of an hour old is no news, and is given up: so a flood to a dead address ends
by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rowlock.controllers.supervisor import ERRORS
from rowlock.documents.notify_address import NotifyAddress
from rowlock.rest.notifications.message import Message
from rowlock.rest.notifications.receivers import deliver
from rowlock.rest.notifications.webhook import Answer, Judge, Undelivered

STALE = 900.0
"""Seconds after which what happened is no longer told."""
PAUSES = (0.0, 5.0, 30.0, 120.0, 300.0)
"""Seconds before each try."""
WAITING_PER_NAMESPACE, WAITING = 200, 5_000
_CONNECTIONS_PER_NAMESPACE, _CONNECTIONS = 2, 16

Deliver = Callable[[NotifyAddress, Message, Judge], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way. `done` is called once, with "" or the reason why it did not arrive."""

    namespace: str
    address: NotifyAddress
    message: Message
    judge: Judge
    at: float
    """When it happened, in seconds since the epoch."""
    done: Callable[[str], Awaitable[None]]
    is_wanted: Callable[[], bool] = lambda: True
    """Asked before each try: the address may have been taken back meanwhile."""


@dataclass(slots=True)
class _Connections:
    """A namespace's: at most two at a time."""

    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONNECTIONS_PER_NAMESPACE))
    users: int = 0


class Lanes:
    """Delivers messages; `run` does the work."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        deliver: Deliver = deliver,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._deliver, self._sleep = clock, deliver, sleep
        self._lanes: dict[tuple[str, str], deque[Delivery]] = {}
        self._waiting: Counter[str] = Counter()
        """The number of messages of each namespace that wait or are on their way."""
        self._connections: dict[str, _Connections] = {}
        self._total = asyncio.Semaphore(_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, delivery: Delivery) -> str:
        """Queue a message. Returns why there is no room for it, or ""."""
        if self._waiting[delivery.namespace] >= WAITING_PER_NAMESPACE:
            return f"{WAITING_PER_NAMESPACE} notifications of this project are waiting already"
        if self._waiting.total() >= WAITING:
            return f"{WAITING:,} notifications are waiting already"
        self._waiting[delivery.namespace] += 1
        key = (delivery.namespace, delivery.address.origin)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
            task = asyncio.create_task(self._empty(key, lane), name="notifications")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        lane.append(delivery)
        return ""

    def stop(self) -> None:
        """Drop everything that waits: the next server tells what was not marked as told."""
        for task in self._tasks:
            task.cancel()

    def users_of(self, namespace: str) -> int:
        """How many use or wait for a connection on behalf of this namespace."""
        return self._connections[namespace].users if namespace in self._connections else 0

    @asynccontextmanager
    async def connection(self, namespace: str) -> AsyncIterator[None]:
        """Enter for one connection on behalf of this namespace."""
        own = self._connections.setdefault(namespace, _Connections())
        own.users += 1
        try:
            async with own.limit, self._total:
                yield
        finally:
            own.users -= 1
            if not own.users:
                self._connections.pop(namespace, None)

    async def _empty(self, key: tuple[str, str], lane: deque[Delivery]) -> None:
        try:
            while lane:
                delivery = lane.popleft()
                try:
                    await delivery.done(await self._send(delivery))
                except Exception as error:  # noqa: BLE001 (others in this lane must not wait for ever)
                    ERRORS.report("a notification", error, "it is given up")
                finally:
                    self._count_down(delivery.namespace)
        finally:
            del self._lanes[key]
            for delivery in lane:
                self._count_down(delivery.namespace)

    def _count_down(self, namespace: str) -> None:
        self._waiting[namespace] -= 1
        if self._waiting[namespace] <= 0:
            del self._waiting[namespace]

    async def _send(self, delivery: Delivery) -> str:
        """Send a message, in several tries. Returns why it did not arrive, or ""."""
        reason, tries = "it waited too long for others to the same address", 0
        for pause in PAUSES:
            if delivery.at + STALE <= self._clock() + pause:
                break
            if pause:
                await self._sleep(pause)
            if not delivery.is_wanted():
                return "the address was changed or taken back before it arrived"
            tries += 1
            try:
                async with self.connection(delivery.namespace):
                    await self._deliver(delivery.address, delivery.message, delivery.judge)
                return ""
            except Undelivered as failure:
                reason = failure.reason
                if failure.is_final:
                    return reason
        return f"{reason} ({tries} tries)" if tries > 1 else reason
