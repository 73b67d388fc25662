"""Files that do not answer: their user is told, waits for no other search, and takes nobody's place."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from rowlock.controllers.file_reads import FileReads
from rowlock.errors import Unavailable


async def answer_of(reads: FileReads, user: str) -> None:
    """Asks until there is an answer: on a busy machine it may be late."""
    async with asyncio.timeout(200):
        while True:
            with suppress(Unavailable):
                assert await reads.take_turn(user, lambda: 7) == 7
                return
            await asyncio.sleep(0.01)


def test_users_whose_files_hang_hold_up_nobody_else() -> None:
    async def body() -> None:
        reads, answers = FileReads(0.05), threading.Event()
        before = threading.active_count()
        for user in ("ana", "ben", "eve"):  # more than the places there are
            with pytest.raises(Unavailable, match="did not answer within"):
                await reads.take_turn(user, answers.wait)
            for _ in range(5):
                with pytest.raises(Unavailable, match="an earlier search of yours"):
                    await reads.take_turn(user, lambda: None)
        await answer_of(reads, "zoe")
        assert threading.active_count() <= before + 4, "one thread a user"
        answers.set()
        await answer_of(reads, "ana")

    asyncio.run(body())


def test_who_goes_away_keeps_the_thread_and_gets_no_second_one() -> None:
    async def body() -> None:
        reads, began, answers = FileReads(60.0), threading.Event(), threading.Event()

        def hang() -> None:
            began.set()
            answers.wait()

        task = asyncio.create_task(reads.take_turn("ana", hang))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(Unavailable):
            await reads.take_turn("ana", lambda: None)
        answers.set()

    asyncio.run(body())


def test_what_a_read_raises_is_raised() -> None:
    async def body() -> None:
        with pytest.raises(ZeroDivisionError):
            await FileReads(60.0).take_turn("ana", lambda: 1 // 0)

    asyncio.run(body())
