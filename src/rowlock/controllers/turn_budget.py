"""Long work on the event loop, in slices of two milliseconds, between which other tasks get their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE = 0.002
"""Seconds of work between two pauses: when a dozen such works go on at once, a turn of the loop still takes less than 50 ms."""


class TurnBudget:
    """`await budget.pause_if_due()` between the pieces of a long work; each piece must be short."""

    def __init__(self, seconds: float = SLICE) -> None:
        self._seconds, self._due = seconds, 0.0

    async def pause_if_due(self) -> None:
        """Let other tasks run when the last pause is longer ago than a slice; that costs a look at the clock."""
        if time.perf_counter() >= self._due:
            await asyncio.sleep(0)
            self._due = time.perf_counter() + self._seconds


class SharedTurn:
    """Pieces of work that come from many tasks at once: `async with turn:` around each. Those that together have taken a slice
    in one turn of the loop leave the others to the next ones, first come first served."""

    def __init__(self, seconds: float = SLICE) -> None:
        self._seconds, self._spent, self._began = seconds, 0.0, 0.0

    async def __aenter__(self) -> None:
        while self._spent >= self._seconds:
            await asyncio.sleep(0)
        self._began = time.perf_counter()

    async def __aexit__(self, *_: object) -> None:
        """Nothing is awaited between the two."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._spent += time.perf_counter() - self._began

    def _end_turn(self) -> None:
        self._spent = 0.0


async def take_slices(items: Sequence[T], size: int) -> AsyncIterator[Sequence[T]]:
    """So many items at a time; other tasks have their turn before the next ones. What is short takes no turn."""
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + size]
