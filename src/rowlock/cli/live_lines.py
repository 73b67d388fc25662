"""Unfinished lines on a terminal: each rank's progress bar stays on its own line, below the printed text.

The server sends the state of such a line after a carriage return (`\\r[rank 0]  45%|####`). The next state of the same rank
replaces it, and so does the finished line, which is sent like any other.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import TextIO

STATE = "\r"
_TAG = re.compile(r"\[[^\]]*\] ")
_LINES_LEFT = 4
"""How many lines of the terminal the bars leave free."""
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


class LiveLines:
    """The bars at the bottom of the terminal. The process has one instance, `TERMINAL`, because all output must go above
    the bars."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._drawn = 0
        self._lock = threading.RLock()

    def write(self, text: str, stream: TextIO | None = None) -> None:
        """Print one line with its newline, or show the state of an unfinished one. Safe to call from threads."""
        stream = stream or sys.stdout
        with self._lock:
            if text.startswith(STATE):
                text = text[1:].rstrip("\n")
                self._states[_tag(text)] = text
                self._redraw("")
                return
            if stream is sys.stdout:
                self._states.pop(_tag(text), None)
            if (not self._drawn and not self._states) or not stream.isatty():
                stream.write(text)
                stream.flush()
                return
            self._redraw(text)

    def clear(self) -> None:
        """Forget the bars; their last states stay on the terminal."""
        with self._lock:
            left, self._states = "".join(f"{state}\n" for state in self._states.values()), {}
            if left or self._drawn:
                self._redraw(left)

    def _redraw(self, printed: str) -> None:
        """Move up to the first bar, clear, print the text, and draw the bars again: in one write, so that nothing
        flickers."""
        size = _terminal_size()
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        room = max(1, size.lines - _LINES_LEFT)
        shown = list(self._states.values())[:room]
        if len(self._states) > room:
            shown[-1] = f"and {len(self._states) - room + 1} more ranks"
        bars = "".join(f"{_fit(state, size.columns)}\n" for state in shown)
        sys.stdout.write(f"{up}\r\x1b[J{printed}{bars}")
        sys.stdout.flush()
        self._drawn = len(shown)


def _terminal_size() -> os.terminal_size:
    """The size of stdout's terminal; 80 columns and 24 lines if it is unknown."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return os.terminal_size((columns or 80, lines or 24))


def _tag(text: str) -> str:
    match = _TAG.match(text)
    return match[0] if match else ""


def _fit(text: str, columns: int) -> str:
    """Cut the text to one line of the terminal, and reset its colours."""
    plain = _SEQUENCE.sub("", text).expandtabs()
    if len(plain) < columns:
        return text.expandtabs() + ("\x1b[0m" if plain != text else "")
    return plain[: columns - 1]


TERMINAL = LiveLines()
