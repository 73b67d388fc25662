"""A streamed answer of HTTP in the pieces in which it comes, and as lines. One that breaks off is an error, not an end."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

_PIECE = 1 << 16
LONGEST_LINE = 1 << 20
"""Bytes of a line at most: a longer one comes in pieces, because a program may print for ever without a newline."""


def read_pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The bytes as they arrive. Raises IncompleteRead when the server went away before the end; OSError.

    `readline` of an answer takes a connection that was closed between two chunks for the end of the text; `read1` does not."""
    while piece := answer.read1(_PIECE):
        yield piece
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines, each with its newline; the last may have none."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest
