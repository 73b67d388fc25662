"""Sets what `ps`, `pgrep -f` and `/proc/PID` show of a process that became a program without exec.

The kernel reads the command line and the environment from the process's own memory, at addresses that `PR_SET_MM_MAP` sets
without privileges. If the kernel was built without it, the words overwrite those that the process began with, as far as they
fit. Called once, in a warm program's own process. Standard library only; does nothing except on Linux.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping

_NAME, _DUMPABLE, _MEMORY, _MAP = 15, 4, 35, 14
_LAYOUT = "=11QQII"
"""`struct prctl_mm_map`: eleven addresses, the auxiliary vector and its size, the program's file."""
_NO_AUXV_NO_EXE_FD = (0, 0, 0xFFFFFFFF)
"""The values of the last three fields: unchanged."""
_ALWAYS_DUMPABLE = 1

_libc = ctypes.CDLL(None)
_malloc, _sbrk, _call = (getattr(_libc, name, None) for name in ("malloc", "sbrk", "prctl"))
"""Looked up once, in the parent; None except on Linux."""
for _function in (_malloc, _sbrk):
    if _function is not None:
        _function.restype = ctypes.c_void_p


def show(name: str, words: Iterable[str], env: Mapping[str, str]) -> None:
    """Makes the process look as if it had exec'ed `name` with these words and this environment."""
    arguments = b"".join(os.fsencode(word) + b"\0" for word in words)
    variables = b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in env.items())
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return
    _prctl(_DUMPABLE, _ALWAYS_DUMPABLE)  # a change of user resets it, which denies the process its own /proc/self/fd
    _prctl(_NAME, os.fsencode(os.path.basename(name)))
    stat_fields = {number: int(fields[number - 3]) for number in (26, 27, 28, *range(45, 50))}  # numbered as in proc(5)
    if not _set_mm_map(stat_fields, arguments, variables):
        _overwrite_arguments(stat_fields[48], stat_fields[49], arguments)


def _set_mm_map(stat_fields: Mapping[int, int], arguments: bytes, variables: bytes) -> bool:
    """Points the kernel to a copy that is never freed; False if it refuses."""
    if _malloc is None or _sbrk is None or not (start := _malloc(ctypes.c_size_t(len(arguments) + len(variables)))):
        return False
    ctypes.memmove(start, arguments + variables, len(arguments) + len(variables))
    middle, end = start + len(arguments), start + len(arguments) + len(variables)
    program = (
        stat_fields[26],
        stat_fields[27],
        stat_fields[45],
        stat_fields[46],
        stat_fields[47],
        _sbrk(0),
        stat_fields[28],
    )
    layout = struct.pack(_LAYOUT, *program, start, middle, middle, end, *_NO_AUXV_NO_EXE_FD)
    return _prctl(_MEMORY, _MAP, layout, len(layout)) == 0


def _overwrite_arguments(start: int, end: int, arguments: bytes) -> None:
    """Overwrites the process's original arguments. The last byte stays 0: otherwise the kernel reads on into the environment."""
    room = end - start - 1
    ctypes.memmove(start, arguments[:room].ljust(room, b"\0"), room)


def _prctl(option: int, *values: int | bytes) -> int:
    words = [ctypes.c_char_p(v) if isinstance(v, bytes) else ctypes.c_ulong(v) for v in (*values, 0, 0, 0, 0)[:4]]
    return int(_call(option, *words)) if _call is not None else -1
