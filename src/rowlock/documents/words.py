"""Splits a command line into words like `shlex.split`, but much faster, because a client may send megabytes."""

from __future__ import annotations

import re

LONGEST = 64 << 10
"""The most characters of a line that is split; longer commands must be sent as a list of words."""
_PIECE = re.compile(r"""([ \t\r\n]+)|([^ \t\r\n'"\\]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.S)
_ESCAPED = re.compile(r'\\(["\\])')


def split_words(text: str) -> tuple[str, ...]:
    """The words of a line. Raises ValueError, with a sentence, for unterminated quotes and escapes, and for a line longer than
    `LONGEST`."""
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters, and {LONGEST} are split at most. Send a list of words")
    words, parts, end = list[str](), list[str](), 0
    while end < len(text):
        match = _PIECE.match(text, end)
        if match is None:
            raise ValueError("No escaped character" if text[end] == "\\" else "No closing quotation")
        end = match.end()
        kind = match.lastindex
        if kind == 1:
            words += ["".join(parts)] if parts else []
            parts = []
        else:
            found = match[kind or 0]
            parts.append(_ESCAPED.sub(r"\1", found) if kind == 4 else found)
    words += ["".join(parts)] if parts else []
    return tuple(words)
