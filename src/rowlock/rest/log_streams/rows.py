"""Rows of a terminal that a program writes over: nested progress bars go down a row, draw, and come up again (`ESC [ A`).

A row becomes a line when it is out of the program's reach, or the program has drawn no more. Pure.
"""

from __future__ import annotations

import re

_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfhlsu]")
"""Terminal sequences that move the cursor or clear the screen; they are removed, because they assume the program's own
terminal."""
_UP = re.compile(rb"\x1b\[([0-9]{0,3})A")
_ERASES = re.compile(rb"\r|\x1b\[[0-2]?K")
_MAX_REACH = 50
"""Rows above the last that can be written over."""
_MAX_UPS = 200
"""Moves in one line that count."""
_LONGEST_DRAWN = 1 << 16
"""Bytes of a line in which moves count: to look for them in a megabyte takes a fifth of a second."""


def final_state(line: bytes, *, stamped: bool = False) -> bytes:
    """The line (without its newline) as a terminal would show it: what was written after the last carriage return."""
    if b"\r" not in line:
        return line
    stamp, text = split_stamp(line, stamped)
    return stamp + _visible_text(text)


def split_stamp(line: bytes, stamped: bool) -> tuple[bytes, bytes]:
    """`("2026-01-01T00:00:00Z ", "text")`; the first is empty where lines bear no time."""
    if not stamped:
        return b"", line
    stamp, blank, text = line.partition(b" ")
    return stamp + blank, text


def shorten(rest: bytes, *, stamped: bool) -> bytes:
    """An unfinished line without what it has written over, so that a bar of hours stays short; still one that was drawn over."""
    stamp, text = split_stamp(rest, stamped)
    end = 0
    if len(text) <= _LONGEST_DRAWN:
        for found in _UP.finditer(text):
            end = found.end()
    head, tail = text[:end], text[end:]
    if b"\r" not in tail:
        return rest
    return stamp + head + b"\r" + _visible_text(tail) + b"\r" * tail.endswith(b"\r")


def _visible_text(text: bytes) -> bytes:
    return _MOVES.sub(b"", text.rstrip(b"\r").rpartition(b"\r")[2])


class Rows:
    """What stands in the rows that may still change. Rows are counted from the first in reach of the first upward move."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._bars: set[int] = set()
        """Those of the held rows that were drawn over: they may be again."""
        self._bottom = self._cursor = 0
        self._reach = 0
        """So many rows the program has gone up, lately; 0: each line is final when it ends."""
        self._quiet = 0
        """Lines since it has gone up."""
        self._last = b""

    def end_line(self, line: bytes, *, stamped: bool) -> list[bytes]:
        """The lines that are final now that this one ends, without their newlines."""
        if len(line) > _LONGEST_DRAWN:
            return [*self.take_held(), final_state(line, stamped=stamped)]
        if not self._reach and not (b"\x1b[" in line and _UP.search(line)):
            return [final_state(line, stamped=stamped)]
        has_moved = self._write(line, stamped=stamped)
        self._quiet = 0 if has_moved else self._quiet + 1
        if self._cursor < self._bottom:
            self._cursor += 1
            return []
        self._bottom = self._cursor = self._bottom + 1
        if self._quiet > 2 * self._reach + 1:  # a bar that is made anew has ended lines before it goes up
            return self.take_held()
        final = [row for row in self._held if row not in self._bars or row < self._bottom - self._reach]
        return self._take(max(final, default=-_MAX_REACH))

    def take_held(self) -> list[bytes]:
        """All rows that were waited for: nothing is drawn over any more."""
        self._reach, self._cursor = 0, self._bottom
        return self._take(self._bottom)

    def state(self, rest: bytes, *, stamped: bool) -> bytes:
        """What a bar shows while its line is unfinished: the row that was drawn last."""
        stamp, text = split_stamp(rest, stamped)
        for piece in reversed(_UP.split(text, _MAX_UPS)[::2]):
            if (shown := _visible_text(piece)).strip():
                return stamp + shown
        return self._last if self._reach else b""

    def _write(self, line: bytes, *, stamped: bool) -> bool:
        """Whether the line goes up."""
        stamp, text = split_stamp(line, stamped)
        first, *others = _UP.split(text, _MAX_UPS)
        self._draw(stamp, first, is_whole=not others)
        for count, piece in zip(others[::2], others[1::2], strict=True):
            self._cursor = max(self._cursor - int(count or 1), self._bottom - _MAX_REACH)
            self._reach = max(self._reach, self._bottom - self._cursor)
            self._draw(stamp, piece, is_whole=False)
        return bool(others)

    def _draw(self, stamp: bytes, piece: bytes, *, is_whole: bool) -> None:
        shown, erases = _visible_text(piece), bool(_ERASES.search(piece))
        if shown.strip() or (is_whole and not erases and self._cursor == self._bottom):
            self._held[self._cursor] = self._last = stamp + shown
            (self._bars.add if erases else self._bars.discard)(self._cursor)
        elif erases:
            self._held.pop(self._cursor, None)

    def _take(self, last: int) -> list[bytes]:
        taken = sorted(row for row in self._held if row <= last)
        self._bars.difference_update(taken)
        return [self._held.pop(row) for row in taken]
