"""The file of a log that is being followed: it grows with the stream, and a broken stream goes on behind its last line.

An API server begins a log again at a whole second, so what comes twice is left out by its time stamps. A file that was
left by a server that was killed goes on in the same way.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rowlock import objects

MAX_BYTES = 50 << 20
"""Of one life's log; when it is longer the first half is given up, as kubelets do."""
_TAIL = 1 << 16


class FollowedLog:
    """Lines `time text` in a file. `begin` before each stream, then `append` what comes. Its methods wait for the disk."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._last, self._known = b"", 0
        """The stamp of the last line that was there when the stream began, and how many lines have it."""
        self._rest = b""
        """The beginning of a line, while lines are compared."""

    def begin(self) -> float | None:
        """Get ready for a stream: the second from which it must begin; None = from the start. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rest, self._last, self._known = b"", b"", 0
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "r+b") as file:
            size = os.fstat(fd).st_size
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            file.truncate(size - len(tail) + whole)
        lines = tail[:whole].splitlines()
        stamp = _stamp_of(lines[-1]) if lines else b""
        if not stamp:
            os.truncate(self.path, 0)  # what is there has no times to go on behind: the stream brings it again
            return None
        self._last, self._known = stamp, sum(_stamp_of(line) == stamp for line in lines)
        return float(int(objects.seconds(stamp.decode())))

    def append(self, chunk: bytes) -> None:
        """What the stream brought. Raises OSError."""
        if self._last:
            chunk = self._leave_out_known(chunk)
        if not chunk:
            return
        with open(self.path, "ab", opener=_open_private) as file:
            file.write(chunk)
            size = file.tell()
        if size > self._max_bytes:
            self._give_up_first_half(size)

    def _leave_out_known(self, chunk: bytes) -> bytes:
        """The part of a chunk that is behind the last line that is there."""
        text = self._rest + chunk
        position = 0
        while (end := text.find(b"\n", position)) >= 0:
            stamp = _stamp_of(text[position : position + 64])
            if _is_later(stamp, self._last) or (stamp == self._last and self._known <= 0):
                self._rest, self._last = b"", b""
                return text[position:]
            if stamp == self._last:
                self._known -= 1
            position = end + 1
        self._rest = text[position:]
        return b""

    def _give_up_first_half(self, size: int) -> None:
        shorter = self.path.with_name(self.path.name + ".new")
        with self.path.open("rb") as source, open(shorter, "wb", opener=_open_private) as target:
            source.seek(size - self._max_bytes // 2)
            source.readline(_TAIL)
            while block := source.read(1 << 20):
                target.write(block)
        shorter.replace(self.path)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _stamp_of(line: bytes) -> bytes:
    """The RFC 3339 time before a line; b"" where there is none."""
    stamp = line.partition(b" ")[0]
    with contextlib.suppress(ValueError):
        if stamp[10:11] == b"T" and objects.seconds(stamp.decode("ascii", "replace")):
            return stamp
    return b""


def _is_later(stamp: bytes, other: bytes) -> bool:
    return bool(stamp) and _comparable(stamp) > _comparable(other)


def _comparable(stamp: bytes) -> tuple[int, bytes]:
    """Nodes write up to nine digits below the second, some in their own time zone; a float has six."""
    fraction = stamp[20:].rstrip(b"Z").partition(b"+")[0] if stamp[19:20] == b"." else b""
    return int(objects.seconds(stamp.decode())), fraction[:9].ljust(9, b"0")
