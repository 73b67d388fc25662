"""Reads the log of an ended container run from the archive, in the form of `Api.log`."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from itertools import islice

from rowlock.api import LogOptions
from rowlock.archive.archive import Archive
from rowlock.archive.log_intake import line_time, read_lines
from rowlock.archive.records import LogRecord

_HELD_LINES = 1_000
"""The largest `tail` that is answered from memory; for a larger one the log is read twice."""


async def read_archived_log(archive: Archive, record: LogRecord, options: LogOptions) -> AsyncIterator[bytes]:
    """The log in blocks of complete lines, selected by `options`. Raises sqlite3.Error, OSError."""
    chunks = await archive.read(lambda connection: archive.read_log_chunks(connection, record))
    lines = _select_lines(chunks, options)
    while block := await archive.read_pieces(partial(_take_block, lines, options.read_size)):
        yield block


def _take_block(lines: Iterator[bytes], least_size: int) -> bytes:
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= least_size:
            break
    return b"".join(block)


def _since(chunks: Iterable[bytes], options: LogOptions) -> Iterator[bytes]:
    lines, since = read_lines(chunks), options.since
    return lines if since is None else (line for line in lines if line_time(line) >= since)


def _select_lines(chunks: Iterable[bytes], options: LogOptions) -> Iterator[bytes]:
    lines = _since(chunks, options)
    if options.tail is not None and options.tail <= _HELD_LINES:
        lines = iter(deque(lines, maxlen=options.tail))
    elif options.tail is not None:  # count the lines first, then read again
        lines = islice(_since(chunks, options), max(0, sum(1 for _ in lines) - options.tail), None)
    left = options.limit_bytes
    for line in lines:
        text = line if options.timestamps else line.partition(b" ")[2]
        if left is not None:
            text, left = text[:left], left - len(text)
        if text:
            yield text
        if left is not None and left <= 0:
            return
