"""Puts the memory of a warm parent into huge pages, so that forking it is fast.

A fork copies a page table entry for each page that the process owns. An imported torch has 300 MB, which are 75,000 entries
and five milliseconds, twice for each rank: for the shim and its program. In pages of 2 MiB there are 150. What a fork writes to
later is copied in small pages all the same. Standard library only.
"""

import ctypes
import sys
from collections.abc import Iterator

_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1; older kernels refuse it, without effect."""
_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def collapse_memory() -> bool:
    """Puts this process's own memory into huge pages, as far as the kernel does it. Returns whether any was."""
    if sys.platform != "linux" or not _are_wanted():
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    answers = [madvise(start, end - start, _COLLAPSE) for start, end in list(_own_regions())]
    return 0 in answers


def _are_wanted() -> bool:
    """Whether the user has not switched huge pages off."""
    try:
        with open(_SETTING) as file:
            return "[never]" not in file.read()
    except OSError:
        return False


def _own_regions() -> Iterator[tuple[int, int]]:
    """Start and end of private memory regions without a file; the kernel collapses the huge pages that each fully covers."""
    with open("/proc/self/maps") as file:
        for line in file:
            bounds, rights, *rest = line.split()
            if rights == "rw-p" and rest[3:] in ([], ["[heap]"]):
                start, _, end = bounds.partition("-")
                yield int(start, 16), int(end, 16)
