"""Long work on the event loop, in slices: who has worked for two milliseconds lets the other tasks have their turn."""

from __future__ import annotations

import asyncio
import time

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
