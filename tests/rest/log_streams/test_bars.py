"""A bar that ends no line reaches who follows whole lines, while it is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.waiting import PATIENCE

from rowlock.rest.log_streams import bars
from rowlock.rest.log_streams.bars import show_bars
from rowlock.rest.log_streams.lines import split_lines


def test_a_bar_that_stands_still_is_shown_before_its_line_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(bars, "LONGEST_PAUSE_S", 0.001)

    async def follow() -> list[bytes]:
        shown, found = asyncio.Event(), list[bytes]()

        async def chunks() -> AsyncIterator[bytes]:
            for percent in (10, 20):
                yield b"\r%d%%\r" % percent
                await shown.wait()  # nothing more is drawn until it has been seen
                shown.clear()
            yield b"\r100%\ndone\n"

        async for line in show_bars(split_lines(chunks(), states=True)):
            found.append(line)
            shown.set()
        return found

    assert asyncio.run(follow()) == [b"10%\n", b"20%\n", b"100%\n", b"done\n"]


def test_a_short_bar_is_one_line() -> None:
    async def follow() -> list[bytes]:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"begin\n\r10%"
            yield b"\r50%"
            yield b"\r100%\n"

        return [line async for line in show_bars(split_lines(chunks(), states=True))]

    assert asyncio.run(follow()) == [b"begin\n", b"100%\n"]


def test_a_follower_that_goes_leaves_no_read_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "FIRST_PAUSE_S", 0.001)

    async def follow() -> bool:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"\r10%\r"
            await asyncio.Event().wait()

        lines = show_bars(split_lines(chunks(), states=True))
        assert await anext(lines) == b"10%\n"
        await asyncio.wait_for(asyncio.create_task(asyncio.sleep(0)), PATIENCE)
        await lines.aclose()  # type: ignore[attr-defined] # a generator
        return len(asyncio.all_tasks()) == 1

    assert asyncio.run(follow())
