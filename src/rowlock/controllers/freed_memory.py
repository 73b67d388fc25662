"""Memory that was freed and that the C library keeps: given back to the machine at a quiet moment.

Once a large block was freed, glibc takes later ones of up to 32 MiB from its heap and not from the kernel, and gives back no more of the
heap than its end. Six readers of a log with lines of 1 MiB took the server from 63 to 768 MiB, and there it stayed; with this it has 183
MiB meanwhile and 136 afterwards. Nothing of Python's own is concerned: objects are small, and its arenas go when they are empty.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable

WORTHWHILE = 32 << 20
"""Bytes that the process has grown by since it last gave back; less is not worth the walk through the heap."""
PATIENCE = 10.0
"""Seconds after which a busy server gives back, too. The walk takes 20 ms for 100 MiB, beside the loop, which waits if it needs a large block."""


def resident_bytes() -> int:
    """Of this process; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def find_trim() -> Callable[[], object] | None:
    """glibc's `malloc_trim`, which lets go of the interpreter's lock; None with another C library."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: trim(0)


class FreedMemory:
    """Gives back what the process has grown by, once it is quiet. `measure`: bytes that are resident."""

    def __init__(self, trim: Callable[[], object] | None = None, measure: Callable[[], int] = resident_bytes) -> None:
        self._trim, self._measure = trim or find_trim(), measure
        self._floor = 0
        """Bytes that stayed when it last gave back: they are in use."""
        self._grown_since: float | None = None

    async def look(self, now: float, *, is_quiet: bool) -> bool:
        """Did it give back? `now`: seconds of a steady clock. To be called every few seconds."""
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
