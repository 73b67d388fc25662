"""When Python collects cyclic garbage: young objects by itself; the whole heap once an hour, when nobody waits for an answer.

Objects of the API are trees, which are freed without a collection. What is left are the cycles of connections, tasks and
exceptions: 400 objects after 1,500 jobs. A collection of the whole heap looks at every object of the cluster to find them and holds
the event loop for 90 to 230 ms with five thousand jobs. So what survives two young collections is taken out of sight (`gc.freeze`):
no collection looks at it again, until the whole heap's turn comes.

    collector = HeapCollector(clock)
    tasks.create_task(collector.run())
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Mapping

from rowlock.controllers.freed_memory import FreedMemory
from rowlock.controllers.loop_watchdog import TurnClock

_NEW_OBJECTS, _COLLECTIONS = 4_000, 4
"""A young collection after so many new containers, which takes less than a millisecond; a middle one after so many of these,
which looks at 20,000 at most: beside busy neighbours, with 50,000 it held the loop for up to 137 ms."""
_NEVER = 1_000_000
_LOOK_INTERVAL = 2.0
"""Seconds between two looks at how busy the loop is."""
QUIET = 0.03
"""The share of a processor that the loop may use in a quiet moment: an idle server uses less."""
INTERVAL, LATE = 3600.0, 4 * 3600.0
"""Seconds after which a quiet server collects the whole heap; after which a busy one does, too."""
TOO_MANY = 5_000
"""Middle collections after which neither waits any longer: of 100 million new containers a part has become garbage."""


def tune() -> None:
    """To be called once, when everything that stays has been made: no young collection looks at it again."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _COLLECTIONS, _NEVER)
    gc.enable()
    # The thread that writes the journal has nothing to do but to wait for the disk: it shall not wait 5 ms for the loop.
    sys.setswitchinterval(0.001)


def is_due(collections: int, waited: float, busy: float) -> bool:
    """Whether to collect the whole heap now. `collections`: middle ones since the last full one; `waited`: seconds since then;
    `busy`: the share of the last seconds in which the loop worked."""
    if collections == 0:
        return False  # next to nothing was made since
    return collections >= TOO_MANY or waited >= (INTERVAL if busy <= QUIET else LATE)


class HeapCollector:
    """Collects the whole heap of this process at a quiet moment of the loop that `clock` watches, and gives back freed memory."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self._collections = 0
        self._freed_memory = FreedMemory()

    async def run(self) -> None:
        """Until cancelled."""
        gc.callbacks.append(self._freeze_survivors)
        try:
            await self._collect_when_due()
        finally:
            gc.callbacks.remove(self._freeze_survivors)

    def _freeze_survivors(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == 1:
            self._collections += 1
            gc.freeze()  # takes no time: lists are joined

    async def _collect_when_due(self) -> None:
        collected = time.monotonic()
        while True:
            before, began = self._clock.busy_seconds, time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL)
            now = time.monotonic()
            busy = (self._clock.busy_seconds - before) / (now - began)
            await self._freed_memory.look(now, is_quiet=busy <= QUIET)
            if is_due(self._collections, now - collected, busy):
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                self._collections, collected = 0, time.monotonic()
