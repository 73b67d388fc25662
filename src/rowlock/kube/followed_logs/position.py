"""Where a reader of a followed log is, so that another request can go on there: by time and by bytes. Pure.

An API server resumes a log only at a whole second. So the lines of the newest second are counted, and so many are left out of the next stream;
of a line that was cut, the bytes that were read are left out. Lines of two streams of a program may come in another order than their stamps.
"""

from __future__ import annotations

from rowlock.kube.followed_logs import stamps

_NEVER = (-1, b"")
_TO_THE_SECOND = len("2026-11-30T03:20:38")


class LogPosition:
    """Call `begin` before each stream, then `feed` with each chunk. A stream must have time stamps; `timestamps`: the reader gets them, too."""

    def __init__(self, *, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._newest = _NEVER
        """The newest stamp among the lines that were passed on."""
        self._prefix = b""
        """The bytes up to the second of the last stamp with the newest second: most lines need no parsing."""
        self._lines = 0
        """Complete lines of the newest second that were passed on."""
        self._open: bytes | None = None
        """The stamp of the line that was passed on in part, b"" if it has none; None between lines."""
        self._open_bytes = 0
        """Bytes of its text that were passed on."""
        self._counts = False
        """Whether it will be one of `_lines`."""
        self._head = b""
        """The start of a line that is not passed on yet, since its stamp is incomplete or it may be known."""
        self._skip, self._skipped = 0, 0
        """Lines that the current stream repeats: how many are to come, and how many have come."""
        self._is_resuming = False
        self.is_elsewhere = False
        """The current stream does not repeat what is known: it is the log of another run, or its beginning was rotated away. It passes
        nothing on until `accept_gap`."""

    def begin(self) -> int | None:
        """Prepare for a stream. Returns its first second (since the epoch); None = as for a reader who has read nothing."""
        self._head, self.is_elsewhere = b"", False
        self._skip, self._skipped = self._lines, 0
        self._is_resuming = self._newest != _NEVER
        return self._newest[0] if self._is_resuming else None

    @property
    def is_within_line(self) -> bool:
        return self._open is not None and self._open_bytes > 0

    @property
    def has_found_place(self) -> bool:
        """Whether the current stream has repeated something known, or nothing was known."""
        return not self._is_resuming or self._skipped > 0

    def accept_gap(self) -> bytes:
        """Pass the current stream on although it does not go on where the last one ended; returns what is missing of the open line's end."""
        self.is_elsewhere, self._is_resuming, self._skip = False, False, 0
        ended = b"\n" if self.is_within_line else b""
        self._open = None
        return ended

    def feed(self, chunk: bytes) -> bytes:
        """What is new in a chunk."""
        *lines, rest = (self._head + chunk).split(b"\n")
        self._head = b""
        new = [self._take(line, b"\n") for line in lines]
        if rest:
            new.append(self._take_unfinished(rest))
        return b"".join(new)

    def finish(self) -> bytes:
        """What is left when a stream was complete: a last line without a stamp."""
        rest, self._head = self._head, b""
        return b"" if self._is_resuming or self.is_elsewhere else rest

    # ------------------------------------------------------------ lines

    def _take_unfinished(self, rest: bytes) -> bytes:
        is_open = self._open is not None and not self._is_resuming
        if not is_open and ((b" " not in rest and len(rest) <= stamps.LONGEST) or self._must_wait(rest)):
            self._head = rest
            return b""
        return self._take(rest, b"")

    def _must_wait(self, rest: bytes) -> bool:
        """Whether an unfinished line of a resumed stream may end within what is known."""
        if not self._is_resuming:
            return False
        return self._skip > 0 or (self._open is not None and len(rest.partition(b" ")[2]) < self._open_bytes)

    def _take(self, line: bytes, end: bytes) -> bytes:
        """A line, or with no `end` its next part."""
        if self.is_elsewhere:
            return b""
        if self._open is not None and not self._is_resuming:
            self._open_bytes += len(line)
            return self._close(end, line)
        stamp, text = self._stamp_and_text(line)
        if self._is_resuming:
            known = self._leave_out_known(stamp, text, end) if stamp else line + end
            if known is not None:
                return known
        self._open, self._open_bytes, self._counts = stamp, len(text), bool(stamp) and self._note(stamp)
        shown = stamp + b" " + text if self._timestamps and stamp else text
        return self._close(end, shown)

    def _leave_out_known(self, stamp: bytes, text: bytes, end: bytes) -> bytes | None:
        """What is new in a line of a resumed stream that may be known; None if nothing of the line is known."""
        key = self._key(stamp)
        if key[0] < self._newest[0]:
            return b""  # of a server that does not begin where it was asked to
        if self._skip > 0 and key <= self._newest:
            self._skip, self._skipped = self._skip - 1, self._skipped + 1
            return b""
        if not self._skipped and stamp != self._open:
            self.is_elsewhere = True
            return b""
        self._is_resuming, self._skip = False, 0
        if stamp == self._open:
            new, self._open_bytes = text[self._open_bytes :], len(text)
            return self._close(end, new)
        return self._close(b"\n", b"") + self.feed(stamp + b" " + text + end) if self._open is not None else None

    def _close(self, end: bytes, shown: bytes) -> bytes:
        if end:
            self._lines += self._counts
            self._open, self._open_bytes, self._counts = None, 0, False
        return shown + end

    def _stamp_and_text(self, line: bytes) -> tuple[bytes, bytes]:
        stamp, _, text = line.partition(b" ")
        if self._prefix and stamp.startswith(self._prefix) and len(stamp) <= stamps.LONGEST:
            return stamp, text
        return (stamp, text) if stamps.stamp_of(line) else (b"", line)

    def _note(self, stamp: bytes) -> bool:
        """Whether the line is of the newest second, in which lines are counted."""
        key = self._key(stamp)
        if key[0] > self._newest[0]:
            self._newest, self._lines, self._prefix = key, 0, stamp[:_TO_THE_SECOND]
        elif key > self._newest:
            self._newest = key
        return key[0] == self._newest[0]

    def _key(self, stamp: bytes) -> tuple[int, bytes]:
        if self._prefix and stamp.startswith(self._prefix) and stamp.endswith(b"Z"):
            return self._newest[0], stamp[_TO_THE_SECOND + 1 : -1].ljust(9, b"0")
        return stamps.sort_key(stamp)
