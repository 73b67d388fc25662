"""The memory of a warm parent in huge pages, so that a fork of it is quick.

A fork copies an entry for each page that the process has of its own. An imported torch has 300 MB, which are 75,000 entries
and five milliseconds, twice for each rank: the shim, and its program. In pages of 2 MiB they are 150. What a fork writes to
afterwards is copied in small pages all the same. Standard library only.
"""

import ctypes
import sys
from collections.abc import Iterator

_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1; an older kernel refuses it, and nothing has changed."""
_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def collapse_memory() -> bool:
    """Puts this process's own memory into huge pages, as far as the kernel does it. Has it done any of it?"""
    if sys.platform != "linux" or not _are_wanted():
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    answers = [madvise(start, end - start, _COLLAPSE) for start, end in list(_own_regions())]
    return 0 in answers


def _are_wanted() -> bool:
    """No huge pages where the user has switched them off."""
    try:
        with open(_SETTING) as file:
            return "[never]" not in file.read()
    except OSError:
        return False


def _own_regions() -> Iterator[tuple[int, int]]:
    """Private memory that no file is behind, from and to; the kernel takes of each what fills whole huge pages."""
    with open("/proc/self/maps") as file:
        for line in file:
            bounds, rights, *rest = line.split()
            if rights == "rw-p" and rest[3:] in ([], ["[heap]"]):
                start, _, end = bounds.partition("-")
                yield int(start, 16), int(end, 16)
