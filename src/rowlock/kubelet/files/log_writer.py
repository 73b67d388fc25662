"""A container's log as its shim writes it: `time text` a line, the time 31 bytes wide. Standard library only.

The newest part is kept (`DEFAULT_LOG_LIMIT`, as a kubelet keeps 5 files of 10 MiB): beyond that, the oldest fifth is given
back to the disk by punching a hole at the beginning of the file. Offsets of readers stay valid, so a follower notices nothing.
The file never uses more disk than the limit, though its length counts everything that was ever written.
"""

import contextlib
import ctypes
import os
import time

TIMESTAMP_WIDTH = 31
"""Bytes of the timestamp of a line, including the blank."""


DEFAULT_LOG_LIMIT = 50 << 20
"""Bytes of one run's log that are kept by default."""
PART_COUNT = 5
_BLOCK = 1 << 16
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01


class LogFile:
    """The log of one run, for its one writer."""

    def __init__(self, path: str, limit: int = DEFAULT_LOG_LIMIT) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._stamp = LineTimestamper()
        self._part_size = max(_BLOCK, limit // PART_COUNT // _BLOCK * _BLOCK)
        self._size = os.fstat(self._fd).st_size
        self._first_kept = 0
        self._lost_bytes = 0
        self._ends_line = True

    def write(self, chunk: bytes) -> None:
        """Writes output of the program; b"" at its end. A full disk loses output, noted by a line later, but does not stop the program."""
        mark = self._stamp.mark_gap(self._lost_bytes, ends_line=self._ends_line) if self._lost_bytes else b""
        data = mark + (self._stamp(chunk) if chunk else b"")
        written = 0
        with contextlib.suppress(OSError):
            while written < len(data):  # a disk that is nearly full takes a part
                written += os.write(self._fd, data[written:] if written else data)
        if written:
            self._ends_line = data[written - 1 : written] == b"\n"
            self._size += written
        if written >= len(mark):
            self._lost_bytes = 0
        self._lost_bytes += len(data) - max(written, len(mark))
        if self._size - self._first_kept > self._part_size * PART_COUNT:
            with contextlib.suppress(OSError):
                self._drop_oldest_part()

    def close(self) -> None:
        os.close(self._fd)

    def _drop_oldest_part(self) -> None:
        """Drops the oldest part; if the file system has no holes, the whole log."""
        if punch(self._fd, self._first_kept, self._part_size):
            self._first_kept += self._part_size
        else:
            os.ftruncate(self._fd, 0)
            self._size = self._first_kept = 0


def punch(fd: int, start: int, length: int) -> bool:
    """Gives a part of a file back to the disk; it then reads as zeros. False if that fails."""
    call = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
    if call is None:
        return False
    mode = _PUNCH_HOLE | _KEEP_SIZE
    return bool(call(fd, mode, ctypes.c_int64(start), ctypes.c_int64(length)) == 0)


_libc = ctypes.CDLL(None, use_errno=True)


class LineTimestamper:
    """Puts the time before every line; one clock reading per chunk, because output may come at 100 MB/s."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""
        self._at_line_start = True

    def mark_gap(self, lost_bytes: int, *, ends_line: bool) -> bytes:
        """A line that notes lost output; the next chunk begins a line."""
        self._at_line_start = True
        text = b"rowlock: about %d bytes of output are missing here: the disk was full\n" % lost_bytes
        return (b"" if ends_line else b"\n") + self(text)

    def __call__(self, chunk: bytes) -> bytes:
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        if seconds != self._second:
            self._second, self._text = seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        stamp = f"{self._text}.{nanos:09d}Z ".encode()
        ends_line = chunk.endswith(b"\n")
        body = (chunk[:-1] if ends_line else chunk).replace(b"\n", b"\n" + stamp)
        at_line_start, self._at_line_start = self._at_line_start, ends_line
        return (stamp if at_line_start else b"") + body + (b"\n" if ends_line else b"")
