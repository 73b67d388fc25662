"""Reads a streamed HTTP response, in pieces as they arrive or in lines. A response that breaks off is an error, not an end."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

from rowlock.cli.grammar import CommandError

_PIECE = 1 << 16
_LONGEST_SENTENCE = 1 << 12
LONGEST_LINE = 1 << 20
"""Maximum bytes of a line: a longer one is split, because a program may print forever without a newline."""


_LAST_SENTENCE = b"rowlock: the log "
"""How the server begins the last line of a log that it cannot read to its end; it then closes the connection."""


class StreamBroken(CommandError):
    """A streamed response broke off: the server has stopped, the network failed, or the server has said why nothing more comes."""

    def __init__(self, last: bytes = b"") -> None:
        """`last`: the end of what was received."""
        if last.rstrip(b"\n").rpartition(b"\n")[2].startswith(_LAST_SENTENCE):
            super().__init__("the log is not complete: its last line says why")
        else:
            super().__init__("the connection to the server broke; the job goes on. Check the server: `rowlock status`")


def read_pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes as they arrive. Raises StreamBroken when the connection ends before the response does.

    `HTTPResponse.readline` mistakes a connection closed between two chunks for the end of the text; `read1` does not."""
    last = b""
    try:
        while piece := answer.read1(_PIECE):
            yield piece
            last = (last + piece[-_LONGEST_SENTENCE:])[-_LONGEST_SENTENCE:]
    except (OSError, http.client.HTTPException):
        raise StreamBroken(last) from None
    if answer.length:
        raise StreamBroken(last)


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines, each with its newline, which the last may lack. Lines longer than LONGEST_LINE are split."""
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
