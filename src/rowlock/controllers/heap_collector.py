"""When Python collects cyclic garbage: little and often by itself; the whole heap when nobody waits for an answer.

A full collection looks at every object of the cluster and holds the event loop for 90 to 230 ms with five thousand jobs. Little of
what it looks at is garbage: objects of the API are trees, which are freed without it. What is left are the cycles of connections,
tasks and exceptions that lived for a while; they can wait for a quiet second, for an hour at most.

    collector = HeapCollector(clock)
    tasks.create_task(collector.run())
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time

from rowlock.controllers.loop_watchdog import TurnClock

_NEW_OBJECTS, _COLLECTIONS = 10_000, 10
"""A young collection after so many new containers, which takes about a millisecond; a middle one after so many of these."""
_NEVER = 1_000_000
_LOOK_INTERVAL = 2.0
"""Seconds between two looks at how busy the loop is."""
QUIET = 0.03
"""The share of a processor that the loop may use in a quiet moment: an idle server uses less."""
ENOUGH = 5
"""Middle collections (100,000 new containers each, or more) after which a full one is worth its time at once."""
SOON, LATE = 600.0, 3600.0
"""Seconds after which a quiet server collects whatever there is; after which a busy one does, too."""
TOO_MANY = 500
"""Middle collections after which a busy server does not wait any longer."""


def tune() -> None:
    """To be called once, when everything that stays has been made: it is never looked at again."""
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
    if busy <= QUIET:
        return collections >= ENOUGH or waited >= SOON
    return collections >= TOO_MANY or waited >= LATE


class HeapCollector:
    """Collects the whole heap of this process at a quiet moment of the loop that `clock` watches."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        collected = time.monotonic()
        while True:
            before, began = self._clock.busy_seconds, time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL)
            now = time.monotonic()
            busy = (self._clock.busy_seconds - before) / (now - began)
            if is_due(gc.get_count()[2], now - collected, busy):
                gc.collect()
                collected = time.monotonic()
