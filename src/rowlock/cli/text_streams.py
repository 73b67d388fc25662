"""A streamed answer of HTTP in the pieces in which it comes, and as lines. One that breaks off is an error, not an end."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from rowlock.cli.grammar import CommandError

_PIECE = 1 << 16
LONGEST_LINE = 1 << 20
"""Bytes of a line at most: a longer one comes in pieces, because a program may print for ever without a newline."""


class StreamBroken(CommandError):
    """A streamed answer broke off: the server has gone, or the way to it."""

    def __init__(self) -> None:
        super().__init__("the connection to the server broke; the job goes on. Check the server: `rowlock status`")


def read_pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The bytes as they arrive. Raises StreamBroken when the server went away before the end.

    `readline` of an answer takes a connection that was closed between two chunks for the end of the text; `read1` does not."""
    try:
        while piece := answer.read1(_PIECE):
            yield piece
    except (OSError, http.client.HTTPException):
        raise StreamBroken from None
    if answer.length:
        raise StreamBroken


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
