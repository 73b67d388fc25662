"""A container's log: read, tail, since, follow. The files are written by shims, `time text` a line, time 31 bytes wide.

`read(path, options, is_finished)` yields bytes as kubectl wants them. A follower calls `is_finished` before each read,
never after, or the last lines would be lost. It is woken by inotify (one instance for all followers); elsewhere it
polls every 5 to 200 ms.
"""

import asyncio
import contextlib
import ctypes
import os
import re
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from rowlock.api import LogOptions
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.files.log_writer import DEFAULT_LOG_LIMIT, TIMESTAMP_WIDTH
from rowlock.objects import micro_timestamp, seconds

_BLOCK = 1 << 18
_MAX_LINE = 1 << 20
"""Most bytes that are read to find a line's end: a program may have extended its log to 200 GB of zeros."""
_TIMESTAMPS = re.compile(rb"^.{%d}" % TIMESTAMP_WIDTH, re.M)
_LONGEST_WAIT = 2.0
"""Seconds after which a follower polls, even if inotify reported nothing."""
_MODIFY, _NONBLOCK, _CLOEXEC = 0x2, 0o4000, 0o2000000
_libc = ctypes.CDLL(None)


class TimestampStripper:
    """Removes the timestamps from a stream that may be cut anywhere."""

    def __init__(self, *, at_line_start: bool = True) -> None:
        """`at_line_start`: the stream begins with a line, not within one."""
        self._at_line_start = at_line_start
        self._pending = b""

    def __call__(self, data: bytes) -> bytes:
        data = self._pending + data
        self._pending = b""
        if not data:
            return b""
        cut = data.rfind(b"\n") + 1 if (self._at_line_start or b"\n" in data) else 0
        rest = data[cut:]
        if (cut or self._at_line_start) and 0 < len(rest) < TIMESTAMP_WIDTH:  # part of a timestamp: wait for the rest
            self._pending, data = rest, data[:cut]
        if not self._at_line_start:
            first, newline, data = data.partition(b"\n")
            head = first + newline
            self._at_line_start = bool(newline)
        else:
            head = b""
        if data:
            self._at_line_start = data.endswith(b"\n")
        return head + _TIMESTAMPS.sub(b"", data)


def timestamp_of(line: bytes) -> float:
    """When a stored line was written, in seconds since the epoch; 0.0 = unknown."""
    try:
        return seconds(line[:26].decode() + "Z")
    except ValueError:
        return 0.0


def first_kept_offset(file: BinaryIO, position: int) -> int:
    """`position`; if the data there was given back to the disk, the beginning of the first complete line that is kept after it."""
    fd = file.fileno()
    current = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        data = os.lseek(fd, position, os.SEEK_DATA) if hasattr(os, "SEEK_DATA") else position
    except OSError:  # the end of the file, or a file system without SEEK_DATA
        data = position
    finally:
        os.lseek(fd, current, os.SEEK_SET)  # the file object's buffer must not notice
    if data <= position:
        return position
    file.seek(data)
    file.readline(_MAX_LINE)
    return file.tell()


async def find_start(file: BinaryIO, options: LogOptions, log_limit: int) -> int:
    """The offset where the requested part begins. `log_limit`: how far before the end the last lines are searched; no log that a shim
    has written is longer."""
    size, start = file.seek(0, os.SEEK_END), first_kept_offset(file, 0)
    if options.since is not None:
        start = _since_offset(file, (start, size), options.since)
    if options.tail is None:
        return start
    near = max(start, size - _BLOCK)
    offset = _tail_offset(file, (near, size), options.tail)
    if offset > near or near == start:
        return offset
    far = start if size - start <= log_limit else _next_line_offset(file, size - log_limit)
    return await asyncio.to_thread(_tail_offset, file, (far, size), options.tail)


def _tail_offset(file: BinaryIO, bounds: tuple[int, int], lines: int) -> int:
    """The offset where the last `lines` lines begin, read backwards in blocks; the lower bound if there are fewer."""
    first, size = bounds
    if lines <= 0:
        return size
    end, missing = size, lines
    while end > first:
        begin = max(first, end - _BLOCK)
        file.seek(begin)
        block = file.read(end - begin)
        if block.count(0) == len(block) == _BLOCK:  # a hole: shims never write a block without a line's beginning
            return end
        stop = len(block) - 1 if end == size and block.endswith(b"\n") else len(block)
        if (count := block.count(b"\n", 0, stop)) < missing:
            missing -= count
            end = begin
            continue
        return begin + len(block[:stop].rsplit(b"\n", missing)[0]) + 1
    return first


def _since_offset(file: BinaryIO, bounds: tuple[int, int], since: float) -> int:
    """The offset of the first line not older than `since`, by bisection: lines are in order of time."""
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        begin = _next_line_offset(file, middle)
        line = file.readline(_MAX_LINE)
        if not line or timestamp_of(line) >= since:
            high = middle
        else:
            low = begin + len(line)
    return _next_line_offset(file, low)


def _next_line_offset(file: BinaryIO, offset: int) -> int:
    """The offset of the first line that begins at `offset` or later; positions the file there."""
    file.seek(max(0, offset - 1))
    if offset:
        file.readline(_MAX_LINE)
    return file.tell()


class LogWatcher:
    """Wakes followers when a file grows; one inotify instance for the process, opened at first use."""

    def __init__(self) -> None:
        self._fd = -1
        self._events: dict[int, set[asyncio.Event]] = {}

    def _open(self) -> bool:
        if self._fd < 0 and sys.platform == "linux":
            self._fd = int(_libc.inotify_init1(_NONBLOCK | _CLOEXEC))
            if self._fd >= 0:
                asyncio.get_running_loop().add_reader(self._fd, self._wake)
        return self._fd >= 0

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            at = 0
            while at < len(data):
                watch, _, _, length = struct.unpack_from("iIII", data, at)
                at += 16 + length
                for event in self._events.get(watch, ()):
                    event.set()

    @contextlib.contextmanager
    def watch_file(self, path: Path, woken: asyncio.Event) -> Iterator[bool]:
        """Sets `woken` whenever the file grows; yields False where the system cannot watch it."""
        watch = int(_libc.inotify_add_watch(self._fd, os.fsencode(path), _MODIFY)) if self._open() else -1
        if watch < 0:
            yield False
            return
        self._events.setdefault(watch, set()).add(woken)
        try:
            yield True
        finally:
            self._events[watch].discard(woken)
            if not self._events[watch]:
                del self._events[watch]
                _libc.inotify_rm_watch(self._fd, watch)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


async def read(
    path: Path,
    options: LogOptions,
    is_finished: Callable[[], bool],
    woken: asyncio.Event,
    watcher: LogWatcher,
    *,
    log_limit: int = DEFAULT_LOG_LIMIT,
) -> AsyncIterator[bytes]:
    """Reads the log of one run. `is_finished` says that nothing will be added; `woken` is set when that may have changed.
    `log_limit`: bytes of a log that are kept."""
    try:
        fd = untrusted.open_regular(str(path))
    except OSError:  # there is none, or it is not a regular file
        return
    bytes_left = options.limit_bytes
    watched = watcher.watch_file(path, woken) if options.follow else contextlib.nullcontext(False)
    with open(fd, "rb") as file, watched as is_told:
        start = await find_start(file, options, log_limit)
        file.seek(max(0, start - 1))
        reading = _Reading(file, options.timestamps, ends_line=not start or file.read(1) == b"\n")
        file.seek(start)
        pause = 0.005
        while bytes_left is None or bytes_left > 0:
            at_end = not options.follow or is_finished()
            woken.clear()
            chunk = reading.read_chunk(options.read_size)
            if chunk is not None:
                pause = 0.005
                chunk = chunk if bytes_left is None else chunk[:bytes_left]
                bytes_left = bytes_left if bytes_left is None else bytes_left - len(chunk)
                if chunk:
                    yield chunk
                await asyncio.sleep(0)
            elif at_end:
                return
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_WAIT if is_told else pause):
                        await woken.wait()
                pause = min(0.2, pause * 2)


class _Reading:
    """One reader's position in a log file that its writer may shorten at the front meanwhile."""

    def __init__(self, file: BinaryIO, timestamps: bool, *, ends_line: bool) -> None:
        """`ends_line`: whether the position is at the beginning of a line."""
        self._file, self._ends_line = file, ends_line
        self._strip = None if timestamps else TimestampStripper(at_line_start=ends_line)

    def read_chunk(self, size: int) -> bytes | None:
        """The next chunk, b"" after part of a timestamp, None at the end of the file. If the log was shortened beyond the position, a
        line says how much is missing."""
        file = self._file
        while True:
            position = file.tell()
            begin = _next_read_offset(file, position)
            file.seek(begin)
            data = file.read(size)
            if not data or _next_read_offset(file, begin) == begin:
                break
            file.seek(position)  # it was shortened during the read, which may contain zeros
        if begin == position:
            return self._take(data) if data else None
        if self._strip is not None:
            self._strip = TimestampStripper()
        notice = (b"" if self._ends_line else b"\n") + self._hole_line(begin - position, data)
        self._ends_line = True
        return notice + (self._take(data) if data else b"")

    def _take(self, data: bytes) -> bytes:
        chunk = data if self._strip is None else self._strip(data)
        self._ends_line = chunk.endswith(b"\n") if chunk else self._ends_line
        return chunk

    def _hole_line(self, missing: int, following: bytes) -> bytes:
        """`missing`: bytes of the file, timestamps included; below 0 = unknown, as the file was begun anew. `following`: the data
        behind it, whose timestamp the line gets."""
        much = f"{missing} bytes" if missing > 0 else "an unknown number of bytes"
        text = f"rowlock: {much} of this log are missing here: they were dropped at its size limit before this reader had taken them\n"
        if self._strip is not None:
            return text.encode()
        known = timestamp_of(following) > 0
        return (following[:TIMESTAMP_WIDTH] if known else f"{micro_timestamp(time.time())} ".encode()) + text.encode()


def _next_read_offset(file: BinaryIO, position: int) -> int:
    """The offset to read on from: `position`, or the first line kept after it; 0 if the file was emptied."""
    return first_kept_offset(file, position) if os.fstat(file.fileno()).st_size >= position else 0
