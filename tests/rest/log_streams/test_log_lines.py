"""What programs print, as lines: whatever way it is cut, and whatever bars they draw."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rowlock.rest.log_streams.lines import MAX_LINE, final_state, split_lines


def split(*chunks: bytes, **options: bool) -> list[bytes]:
    async def whole() -> list[bytes]:
        async def source() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return [line async for line in split_lines(source(), **options)]

    return asyncio.run(whole())


BAR = b"\r  0%|    |\r 50%|##  |\r100%|####|\nnext\n"


def test_a_bar_is_what_it_said_last() -> None:
    assert split(BAR) == [b"100%|####|\n", b"next\n"]
    for size in range(1, len(BAR)):
        assert split(*(BAR[at : at + size] for at in range(0, len(BAR), size))) == [b"100%|####|\n", b"next\n"]


def test_who_watches_sees_each_state_once() -> None:
    assert split(b"\r 1%", b"\r 2%", b"", b"\r 2%", b"\r 3%\r", b"\r 4%\ndone", states=True) == [
        b"\r 1%\n", b"\r 2%\n", b"\r 3%\n", b" 4%\n", b"done\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", b"plain"),
        (b"windows\r", b"windows"),
        (b"50%\r100%\r", b"100%"),
        (b"\r\x1b[A\x1b[2K 7 \x1b[32mgreen\x1b[0m", b" 7 \x1b[32mgreen\x1b[0m"),
    ],
)
def test_a_line_as_a_terminal_shows_it(line: bytes, shown: bytes) -> None:
    assert final_state(line) == shown


def test_the_time_before_a_line_stays() -> None:
    stamp = b"2026-01-01T00:00:00.000000001Z "
    assert split(stamp + b"\r 1%\r 2%\n", stamp + b"x\n", stamped=True) == [stamp + b" 2%\n", stamp + b"x\n"]


def test_a_line_without_end_is_cut_and_a_bar_is_not_kept() -> None:
    lines = split(*[b"x" * (MAX_LINE // 4)] * 9)
    assert [len(line) for line in lines] == [MAX_LINE + MAX_LINE // 4 + 1, MAX_LINE + 1]
    assert split(*[b"\r" + b"=" * 1000] * 5000) == [b"=" * 1000 + b"\n"]
