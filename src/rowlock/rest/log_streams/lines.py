"""The output of programs as lines. A progress bar overwrites its line after each carriage return: the last version is the
line, and for a follower each earlier version is a *state* of the line."""

from __future__ import annotations

import heapq
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from rowlock.api import LogOptions
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError
from rowlock.rest.log_streams.rows import Rows, final_state, shorten, split_stamp

log = logging.getLogger("rowlock.rest")
MAX_LINE = 1 << 20
"""Most bytes of a line; a longer line is split."""
STATE = b"\r"
"""Prefix of a state in the stream: an unfinished line, which the next state or line of the same rank replaces."""
_MERGED_READ, _SMALLEST_READ = 1 << 23, 1 << 12
"""Bytes read from all merged logs together before the first line is sent, and the least number read from each."""
_LOCAL_RANK = re.compile(rb"\[default([0-9]{1,4})\]:")
"""The prefix that torchrun puts before each line of its ranks with `--tee 3` (`PET_TEE=3`); their role is "default"."""


@dataclass(frozen=True, slots=True)
class LineTag:
    """The prefix of a pod's lines: `[rank 1] `. `first_rank`: the first rank that torchrun starts in the pod, whose
    lines name their rank themselves; None when it is unknown or the pod has one rank."""

    label: str
    first_rank: int | None = None

    def put_before(self, line: bytes, *, stamped: bool) -> bytes:
        """The line with its prefix. `stamped`: it begins with a time and a blank."""
        if self.first_rank is not None:
            stamp, text = split_stamp(line, stamped)
            if found := _LOCAL_RANK.match(text):
                return b"[rank %d] " % (self.first_rank + int(found[1])) + stamp + text[found.end() :]
        return f"[{self.label}] ".encode() + line

    def failure_line(self, error: Exception) -> bytes:
        """The line that replaces the rest of a log that cannot be read."""
        if not isinstance(error, ApiError | OSError):
            log.error("the log of %s cannot be read", self.label, exc_info=error)
        return f"rowlock: the log of {self.label} ends here: {str(error) or type(error).__name__}\n".encode()


async def split_lines(
    chunks: AsyncIterator[bytes], *, states: bool = False, stamped: bool = False
) -> AsyncIterator[bytes]:
    """Split chunks into whole lines, each with its newline, in their final form. `states`: also yield the states of
    unfinished lines, prefixed with `STATE`. `stamped`: each line begins with a time and a blank."""
    rest, shown, rows = b"", b"", Rows()
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            for final in rows.end_line(line, stamped=stamped):
                yield final + b"\n"
                shown = b""
        if b"\r" in rest:
            rest = shorten(rest, stamped=stamped)
            state = rows.state(rest, stamped=stamped)
            if states and state and state != shown:
                yield STATE + state + b"\n"
                shown = state
        if len(rest) > MAX_LINE:
            for final in (*rows.take_held(), final_state(rest, stamped=stamped)):
                yield final + b"\n"
            rest = b""
    ended = rows.end_line(rest, stamped=stamped) if rest.strip(b"\r") else []
    for final in (*ended, *rows.take_held()):
        yield final + b"\n"


async def lines_of_local_rank(lines: AsyncIterator[bytes], local_rank: int, *, stamped: bool) -> AsyncIterator[bytes]:
    """The lines of one rank of a pod in which torchrun starts several (0 is the pod's first), without torchrun's prefix, and the lines
    without a prefix. `stamped`: each line begins with a time and a blank."""
    async for line in lines:
        mark = STATE if line.startswith(STATE) else b""
        stamp, text = split_stamp(line.removeprefix(mark), stamped)
        found = _LOCAL_RANK.match(text)
        if found is None:
            yield line
        elif int(found[1]) == local_rank:
            yield mark + stamp + text[found.end() :]


async def take_lines(lines: AsyncIterator[bytes], count: int | None) -> AsyncIterator[bytes]:
    """At most `count` lines, because a log may grow while it is read."""
    if count == 0:
        return
    async for line in lines:
        yield line
        if count is not None and (count := count - 1) == 0:
            return


def merge_options(options: LogOptions, count: int) -> LogOptions:
    """Options for reading each of `count` logs that are merged by time: the more logs, the smaller the reads of each."""
    read_size = max(_SMALLEST_READ, _MERGED_READ // max(1, count))
    return replace(options, timestamps=True, read_size=min(options.read_size, read_size))


async def merge_by_time(
    streams: list[tuple[bytes, LineTag, AsyncIterator[bytes]]], *, timestamps: bool
) -> AsyncIterator[bytes]:
    """Merge lines of several logs by time stamp; lines with the same time keep the order of their streams. Each stream is (first line,
    its tag, the following lines). Empties the list, so that each stream is freed at its end."""
    heap = [(_stamp_of(line), number, line, tag, lines) for number, (line, tag, lines) in enumerate(streams)]
    streams.clear()
    heapq.heapify(heap)
    budget = TurnBudget()
    while heap:
        _, number, line, tag, lines = heap[0]
        yield tag.put_before(line if timestamps else line.partition(b" ")[2], stamped=timestamps)
        await budget.pause_if_due()
        try:
            next_line = await anext(lines, None)
        except Exception as error:  # noqa: BLE001 (reported as a line; the other logs go on)
            yield tag.failure_line(error)
            next_line = None
        if next_line is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (_stamp_of(next_line), number, next_line, tag, lines))


def _stamp_of(line: bytes) -> bytes:
    return line.partition(b" ")[0]
