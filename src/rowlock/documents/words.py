"""A command line split into words, as `shlex.split` does it, in a time that is a small part of its: a client sends megabytes."""

from __future__ import annotations

import re

LONGEST = 64 << 10
"""Characters of a line that is split: what is longer comes as a list of words."""
_PIECE = re.compile(r"""([ \t\r\n]+)|([^ \t\r\n'"\\]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.S)
_ESCAPED = re.compile(r'\\(["\\])')


def split_words(text: str) -> tuple[str, ...]:
    """The words of a line. Raises ValueError with a sentence for quotes and backslashes that do not end, and for a line that is
    too long."""
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
