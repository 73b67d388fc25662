"""Terminal rows that a program overwrites: nested progress bars move down a row, draw, and move up again (`ESC [ A`).

A row becomes a line when the program can no longer reach it, or has stopped redrawing. Pure.
"""

from __future__ import annotations

import re

_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfhlsu]")
"""Terminal sequences that move the cursor or clear the screen. They are removed, since they only make sense in the
program's own terminal."""
_UP = re.compile(rb"\x1b\[([0-9]{0,3})A")
_ERASES = re.compile(rb"\r|\x1b\[[0-2]?K")
_MAX_REACH = 50
"""Most rows above the last one that can be overwritten."""
_MAX_UPS = 200
"""Most upward moves evaluated in one line."""
_LONGEST_DRAWN = 1 << 16
"""Moves are only evaluated in lines up to this many bytes: searching a megabyte takes 0.2 s."""


def final_state(line: bytes, *, stamped: bool = False) -> bytes:
    """The line (without its newline) as a terminal would show it: what was written after the last carriage return."""
    if b"\r" not in line:
        return line
    stamp, text = split_stamp(line, stamped)
    return stamp + _visible_text(text)


def split_stamp(line: bytes, stamped: bool) -> tuple[bytes, bytes]:
    """The time stamp and the text: `("2026-01-01T00:00:00Z ", "text")`; the first is empty if lines have no time stamp."""
    if not stamped:
        return b"", line
    stamp, blank, text = line.partition(b" ")
    return stamp + blank, text


def shorten(rest: bytes, *, stamped: bool) -> bytes:
    """An unfinished line without its overwritten parts, so that a bar of hours stays short. It keeps a carriage return, and so still
    counts as overwritten."""
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
    """The rows that may still change. Row 0 is the program's position when tracking began; upward moves may lead to negative rows."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}
        self._bars: set[int] = set()
        """The held rows that were overwritten, and may be again."""
        self._bottom = self._cursor = 0
        self._reach = 0
        """Most rows that the program has moved up lately; 0: each line is final when it ends."""
        self._quiet = 0
        """Lines since the last upward move."""
        self._last = b""

    def end_line(self, line: bytes, *, stamped: bool) -> list[bytes]:
        """Process the end of a line; returns the lines that are final now, without newlines."""
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
        if self._quiet > 2 * self._reach + 1:  # a new bar ends some lines before its first upward move
            return self.take_held()
        final = [row for row in self._held if row not in self._bars or row < self._bottom - self._reach]
        return self._take(max(final, default=-_MAX_REACH))

    def take_held(self) -> list[bytes]:
        """Return all held rows as final lines, and stop tracking."""
        self._reach, self._cursor = 0, self._bottom
        return self._take(self._bottom)

    def state(self, rest: bytes, *, stamped: bool) -> bytes:
        """The current state of an unfinished line: the row that was drawn last."""
        stamp, text = split_stamp(rest, stamped)
        for piece in reversed(_UP.split(text, _MAX_UPS)[::2]):
            if (shown := _visible_text(piece)).strip():
                return stamp + shown
        return self._last if self._reach else b""

    def _write(self, line: bytes, *, stamped: bool) -> bool:
        """Apply a line to the held rows; returns whether it contains an upward move."""
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
