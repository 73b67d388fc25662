"""Returns freed memory that the C library keeps to the operating system, at a quiet moment.

After a large block has been freed, glibc allocates blocks of up to 32 MiB on its heap instead of with mmap, and returns only the top of
the heap. Six readers of a log with lines of 1 MiB grew the server from 63 to 768 MiB for good; with this it uses 183 MiB meanwhile and
136 afterwards. Python's own allocator is not affected: its objects are small, and it frees its arenas when they are empty.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable

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
        await asyncio.to_thread(self._trim)
        self._floor, self._grown_since = self._measure(), None
        return True
