"""Long work on the event loop, in slices of two milliseconds between which other tasks run; and work in threads, in fair turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

SLICE = 0.002
"""Seconds of work between two pauses: with a dozen such tasks at once, a turn of the loop still takes less than 50 ms."""

_LEAST_PACED = 8
_PACED_TIME = 0.02
"""Seconds of this thread's CPU time, which does not count what other programs of a busy machine take."""


class TurnBudget:
    """`await budget.pause_if_due()` between the pieces of a long work; each piece must be short."""

    def __init__(self, seconds: float = SLICE) -> None:
        self._seconds, self._due = seconds, 0.0

    async def pause_if_due(self) -> None:
        """Yield to the event loop when the last pause is longer ago than a slice; otherwise it only reads the clock."""
        if time.perf_counter() >= self._due:
            await asyncio.sleep(0)
            self._due = time.perf_counter() + self._seconds


class SharedTurn:
    """A budget that many tasks share: `async with turn:` around each piece of work. Once the pieces of one turn of the loop have
    taken a slice together, the others wait for later turns, first come first served."""

    def __init__(self, seconds: float = SLICE) -> None:
        self._seconds, self._spent, self._began = seconds, 0.0, 0.0

    async def __aenter__(self) -> None:
        while self._spent >= self._seconds:
            await asyncio.sleep(0)
        self._began = time.perf_counter()

    async def __aexit__(self, *_: object) -> None:
        """Count the time of the piece, which must not await anything."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._spent += time.perf_counter() - self._began

    def _end_turn(self) -> None:
        self._spent = 0.0


class OnePerTurn:
    """`await turns.wait()` before a piece of work that takes some milliseconds: each turn of the loop has one of them, in the order of
    their calls."""

    def __init__(self) -> None:
        self._waiting = asyncio.Lock()

    async def wait(self) -> None:
        async with self._waiting:
            await asyncio.sleep(0)


class FairTurns:
    """`async with turns.take(name):` around dear work in a thread. At most `at_once` pieces are in work, and one of each name (a user,
    a namespace); the names take turns, so that a name with many pieces delays its own."""

    def __init__(self, at_once: int = 1) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, name: str) -> AsyncIterator[None]:
        own = self._names.setdefault(name, asyncio.Lock())
        async with own, self._places:
            yield


async def take_paced_slices(
    items: Sequence[T], most: int, clock: Callable[[], float] = time.thread_time
) -> AsyncIterator[Sequence[T]]:
    """`take_slices` for items whose cost is unknown before, and for each of which the caller makes a task: a slice has twice as many as the
    one before, up to `most`, or half as many when the first steps of its tasks took longer than `_PACED_TIME`. What other tasks do in the
    same turn of the loop does not count. Never fewer than `_LEAST_PACED`: each turn has a price of its own, such as a commit and what
    follows it. `clock`: seconds."""
    size, start, began = min(most, _LEAST_PACED), 0, 0.0

    def begin() -> None:
        nonlocal began
        began = clock()

    while start < len(items):
        asyncio.get_running_loop().call_soon(begin)  # the tasks run after it, and before this generator goes on
        yield items[start : start + size]
        start += size
        if start < len(items):
            await asyncio.sleep(0)
            size = min(most, size * 2 if clock() - began <= _PACED_TIME else max(_LEAST_PACED, size // 2))


async def take_slices(items: Sequence[T], size: int) -> AsyncIterator[Sequence[T]]:
    """Slices of `size` items, yielding to the event loop between them; a short sequence is one slice and does not yield."""
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + size]
