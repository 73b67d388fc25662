"""What programs print, as lines. A progress bar writes one line many times over, each time after a carriage return: what
it said last is the line, and where somebody watches, what it says now is a *state* of the line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_LINE = 1 << 20
"""Bytes of a line; a program that never ends one gets a line's end here."""
STATE = b"\r"
"""Begins a line of the stream that is a state: it is not over, and the next one of the same rank takes its place."""
_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfhlsu]")
"""Terminal sequences that move the cursor or clear: they mean a terminal of the program's own."""


_LOCAL_RANK = re.compile(rb"\[default([0-9]{1,4})\]:")
"""What torchrun puts before each line of its ranks when it is told to (`--tee 3`, `PET_TEE=3`); their role is "default"."""


@dataclass(frozen=True, slots=True)
class LineTag:
    """Stands before the lines of a pod: `[rank 1] `. `first_rank`: the first of the ranks that torchrun starts in it, which then say
    themselves whose a line is; None = unknown, or one rank alone."""

    label: str
    first_rank: int | None = None

    def put_before(self, line: bytes, *, stamped: bool) -> bytes:
        """`stamped`: a time and a blank stand before what the program said."""
        if self.first_rank is not None:
            stamp, blank, text = line.partition(b" ") if stamped else (b"", b"", line)
            if found := _LOCAL_RANK.match(text):
                return b"[rank %d] " % (self.first_rank + int(found[1])) + stamp + blank + text[found.end() :]
        return f"[{self.label}] ".encode() + line


async def split_lines(
    chunks: AsyncIterator[bytes], *, states: bool = False, stamped: bool = False
) -> AsyncIterator[bytes]:
    """Chunks as whole lines, each with its newline, as they look when they are over. `states`: also what a line that is
    not over looks like whenever that changes, after `STATE`. `stamped`: a time and a blank stand before each line."""
    rest, shown = b"", b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield final_state(line, stamped=stamped) + b"\n"
            shown = b""
        if b"\r" in rest:
            rest = final_state(rest, stamped=stamped) + b"\r" * rest.endswith(b"\r")
            state = rest.removesuffix(b"\r")
            if states and state != shown:
                yield STATE + state + b"\n"
                shown = state
        if len(rest) > MAX_LINE:
            yield rest + b"\n"
            rest = b""
    if rest := rest.removesuffix(b"\r"):
        yield rest + b"\n"


def final_state(line: bytes, *, stamped: bool = False) -> bytes:
    """The line (without its newline) as a terminal would show it: what was written after the last carriage return."""
    if b"\r" not in line:
        return line
    stamp, blank, text = line.partition(b" ") if stamped else (b"", b"", line)
    return stamp + blank + _MOVES.sub(b"", text.rstrip(b"\r").rpartition(b"\r")[2])


async def take_lines(lines: AsyncIterator[bytes], count: int | None) -> AsyncIterator[bytes]:
    """No more than `count` of them: a log may grow while it is read."""
    if count == 0:
        return
    async for line in lines:
        yield line
        if count is not None and (count := count - 1) == 0:
            return


async def merge_by_time(
    streams: list[tuple[bytes, LineTag, AsyncIterator[bytes]]], *, timestamps: bool
) -> AsyncIterator[bytes]:
    """Stamped lines of several logs in the order of their times: of each its first line, its tag, and the lines after."""
    while streams:
        earliest = min(range(len(streams)), key=lambda n: streams[n][0].partition(b" ")[0])
        line, tag, lines = streams[earliest]
        yield tag.put_before(line if timestamps else line.partition(b" ")[2], stamped=timestamps)
        next_line = await anext(lines, None)
        if next_line is None:
            streams.pop(earliest)
        else:
            streams[earliest] = (next_line, tag, lines)
