"""The log of a life that is over, read from the archive as `Api.log` would have given it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator

from rowlock.api import LogOptions
from rowlock.archive.archive import Archive
from rowlock.archive.log_intake import line_time, read_lines
from rowlock.archive.records import LogRecord

_BLOCK = 1 << 18
"""Bytes that are decompressed in one go, on another thread."""


async def read_archived_log(archive: Archive, record: LogRecord, options: LogOptions) -> AsyncIterator[bytes]:
    """Pieces of whole lines. Raises sqlite3.Error, OSError."""
    chunks = await archive.read(lambda connection: archive.read_log_chunks(connection, record))
    lines = _select_lines(iter(chunks), options)
    while block := await asyncio.to_thread(_take_block, lines):
        yield block


def _take_block(lines: Iterator[bytes]) -> bytes:
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            break
    return b"".join(block)


def _select_lines(chunks: Iterator[bytes], options: LogOptions) -> Iterator[bytes]:
    lines = read_lines(chunks)
    if options.since is not None:
        since = options.since
        lines = (line for line in lines if line_time(line) >= since)
    if options.tail is not None:
        lines = iter(deque(lines, maxlen=options.tail))
    left = options.limit_bytes
    for line in lines:
        text = line if options.timestamps else line.partition(b" ")[2]
        if left is not None:
            text, left = text[:left], left - len(text)
        if text:
            yield text
        if left is not None and left <= 0:
            return
