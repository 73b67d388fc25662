"""When Python collects cyclic garbage: young objects automatically; the whole heap once an hour, while the server is quiet.

API objects are trees, which reference counting frees. What remains are the cycles of connections, tasks and
exceptions: 400 objects after 1,500 jobs. To find them, a full collection traverses every object of the cluster and blocks
the event loop for 90 to 230 ms with five thousand jobs. So what survives two young collections is frozen (`gc.freeze`):
no collection traverses it again until the next full one.

After a large block has been freed, glibc allocates blocks of up to 32 MiB on its heap instead of with mmap, and returns only the top of
the heap. Six readers of a log with lines of 1 MiB grew the server from 63 to 768 MiB for good. `FreedMemory` gives such memory back at a
quiet moment: with it the server uses 183 MiB meanwhile and 136 afterwards.

    collector = HeapCollector(clock)
    tasks.create_task(collector.run())
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping

from rowlock.controllers.loop_watchdog import TurnClock

_NEW_OBJECTS, _COLLECTIONS = 4_000, 4
"""New containers before a young collection, which takes less than a millisecond; and young collections before a middle one, which
traverses 20,000 objects at most: on a busy machine, 50,000 blocked the loop for up to 137 ms."""
_NEVER = 1_000_000
_LOOK_INTERVAL = 2.0
"""Seconds between two measurements of how busy the loop is."""
QUIET = 0.03
"""The share of one processor below which the loop counts as quiet: an idle server uses less."""
INTERVAL, LATE = 3600.0, 4 * 3600.0
"""Seconds between full collections of a quiet server, and of a busy one."""
TOO_MANY = 5_000
"""Middle collections after which a full one runs at once: after 100 million new containers there is garbage worth collecting."""


def tune() -> None:
    """Call once after startup: what exists by then is frozen, and no young collection traverses it again."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _COLLECTIONS, _NEVER)
    gc.enable()
    # The journal's thread mostly waits for the disk: it must not then wait 5 ms (the default) for the GIL.
    sys.setswitchinterval(0.001)


GROWN, GROWN_INTERVAL = 256 << 20, 60.0
"""Bytes by which a quiet server has grown since the last full collection, and seconds since then, after which it collects again: thousands
of connections that ended have buffers in their cycles."""


def is_due(collections: int, waited: float, busy: float, grown: int = 0) -> bool:
    """Whether to collect the whole heap now. `collections`: middle ones since the last full one; `waited`: seconds since then;
    `busy`: the share of the last seconds in which the loop worked; `grown`: resident bytes more than after the last full one."""
    if grown >= GROWN and waited >= GROWN_INTERVAL and busy <= QUIET:
        return True
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
        """Collect when due, until cancelled."""
        gc.callbacks.append(self._freeze_survivors)
        try:
            await self._collect_when_due()
        finally:
            gc.callbacks.remove(self._freeze_survivors)

    def _freeze_survivors(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == 1:
            self._collections += 1
            gc.freeze()  # O(1): it joins two lists

    async def _collect_when_due(self) -> None:
        collected, resident = time.monotonic(), resident_bytes()
        while True:
            before, began = self._clock.busy_seconds, time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL)
            now = time.monotonic()
            busy = (self._clock.busy_seconds - before) / (now - began)
            await self._freed_memory.look(now, is_quiet=busy <= QUIET)
            if is_due(self._collections, now - collected, busy, resident_bytes() - resident):
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                await self._freed_memory.trim()
                self._collections, collected, resident = 0, time.monotonic(), resident_bytes()


WORTHWHILE = 32 << 20
"""Bytes that the process must have grown by since the last trim; less is not worth the walk through the heap."""
PATIENCE = 10.0
"""Seconds after which a busy server trims, too. It takes 20 ms per 100 MiB in a thread; the event loop waits only for large blocks."""


def resident_bytes() -> int:
    """Resident memory of this process; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def find_trim() -> Callable[[], object] | None:
    """glibc's `malloc_trim`, called with the GIL released; None with another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


class FreedMemory:
    """Trims the heap when the process has grown and is quiet. `measure` returns resident bytes."""

    def __init__(self, trim: Callable[[], object] | None = None, measure: Callable[[], int] = resident_bytes) -> None:
        self._trim, self._measure = trim or find_trim(), measure
        self._floor = 0
        """The lowest resident bytes since the last trim: taken as the memory in use."""
        self._grown_since: float | None = None

    async def look(self, now: float, *, is_quiet: bool) -> bool:
        """Trim the heap if due; True if it did. `now`: seconds of a monotonic clock. Call it every few seconds."""
        if self._trim is None:
            return False
        resident = self._measure()
        self._floor = min(self._floor, resident) if self._floor else resident
        if resident - self._floor < WORTHWHILE:
            self._grown_since = None
            return False
        self._grown_since = now if self._grown_since is None else self._grown_since
        if not is_quiet and now - self._grown_since < PATIENCE:
            return False
        await self.trim()
        return True

    async def trim(self) -> None:
        """Give back what is free now."""
        if self._trim is not None:
            await asyncio.to_thread(self._trim)
            self._floor, self._grown_since = self._measure(), None
