"""Progress bars for followers that only accept whole lines: a line that is overwritten for hours is shown from time to time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from rowlock.rest.log_streams.lines import STATE

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
"""Seconds until a bar is first shown, and the longest pause between two times; the pause doubles each time."""


async def show_bars(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines without their states, except that some states of a long-lasting bar are yielded as lines. `lines` come from `split_lines`."""
    state, pause, due = b"", FIRST_PAUSE_S, 0.0
    following: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            if state:
                following = following or asyncio.ensure_future(anext(lines, None))
                await asyncio.wait({following}, timeout=max(0.0, due - time.monotonic()))
                if time.monotonic() >= due:
                    yield state
                    state, pause = b"", min(2 * pause, LONGEST_PAUSE_S)
                    due = time.monotonic() + pause
                    continue
            line = await (following or anext(lines, None))
            following = None
            if line is None:
                return
            if line.startswith(STATE):
                due = due or time.monotonic() + pause
                state = line.removeprefix(STATE)
            else:
                yield line
                state, pause, due = b"", FIRST_PAUSE_S, 0.0
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
