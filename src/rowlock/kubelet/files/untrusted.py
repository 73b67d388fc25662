"""Reads files that pods wrote: small regular files, without blocking, as hostile input.

A program may put a FIFO, a link, a device, a directory, 200 GB of zeros or any JSON in place of a file that is read here.
So a file is opened without following a link and without blocking, must be a regular one, and is read up to a limit;
fields of another type than requested count as missing. Standard library only, because shims use it.
"""

import errno
import json
import math
import os
import stat
from collections.abc import Mapping
from typing import Any

MAX_FACT_BYTES = 1 << 20
"""Most bytes of a file that is read as JSON."""
MAX_TEXT = 1 << 16
"""Most characters of a text in such a file."""
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_FIRST_READ = 1 << 14
_MAX_TIME = 253402300799.0
"""The last second of the year 9999: no later time can be written as Kubernetes writes times."""


def open_regular(path: str, *, follow: bool = False) -> int:
    """Opens a regular file; never blocks. `follow`: a link at the end is followed, for contents that are disclosed to no one.

    Raises OSError: ELOOP for a link, EINVAL for anything else that is not a regular file."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path cannot hold a NUL character", path)
    fd = os.open(path, _FLAGS & ~os.O_NOFOLLOW if follow else _FLAGS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return fd


def read_file(path: str, limit: int) -> bytes:
    """All of a regular file. Raises OSError, with EFBIG when it has more than `limit` bytes."""
    fd = open_regular(path)
    try:
        data = _read_up_to(fd, limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes", path)
    return data


def read_tail(path: str, size: int) -> bytes:
    """The last `size` bytes of a regular file; b"" when there is no such file."""
    try:
        fd = open_regular(path)
    except OSError:
        return b""
    try:
        os.lseek(fd, max(0, os.fstat(fd).st_size - size), os.SEEK_SET)
        return _read_up_to(fd, size)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _read_up_to(fd: int, size: int) -> bytes:
    """Each read asks for little at first: the buffer of a large one is mapped and unmapped, which costs more than the read."""
    data = b""
    while len(data) < size and (piece := os.read(fd, min(size - len(data), max(_FIRST_READ, len(data))))):
        data += piece
    return data


def read_object(path: str, limit: int = MAX_FACT_BYTES) -> dict[str, Any] | None:
    """A file's JSON object; None = there is no file, {} = it is not one object of at most `limit` bytes."""
    try:
        data = read_file(path, limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return {}
    return parse_object(data)


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object; {} for any other text. No number in it is NaN or infinite."""
    try:
        parsed = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON's")


def text_of(fact: Mapping[str, Any], field: str, limit: int = MAX_TEXT) -> str:
    """A field that is a text, cut to `limit` characters, halves of surrogate pairs replaced; "" for anything else."""
    value = fact.get(field)
    return value[:limit].encode(errors="replace").decode() if isinstance(value, str) else ""


def object_of(fact: Mapping[str, Any], field: str) -> dict[str, Any]:
    """A field that is an object; {} for anything else."""
    value = fact.get(field)
    return value if isinstance(value, dict) else {}


def integer_of(fact: Mapping[str, Any], field: str, limit: int = (1 << 31) - 1) -> int:
    """A field that is a whole number from 0 to `limit`; 0 for anything else."""
    value = fact.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        return 0
    return value


def time_of(fact: Mapping[str, Any], field: str) -> float | None:
    """A field that is a time in seconds since the epoch, up to the year 9999; None for anything else."""
    value = fact.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _MAX_TIME else None
