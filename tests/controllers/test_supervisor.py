"""Background work that raises: told once, counted, tried again; nobody else is held up."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rowlock.controllers.supervisor import MAX_DELAY, ContainedTaskGroup, ErrorLog, back_off, supervise


def test_an_error_is_told_once_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    now, delays, attempts = 0.0, list[float](), 0
    errors = ErrorLog(clock=lambda: now)

    async def work() -> None:
        nonlocal attempts, now
        attempts += 1
        if attempts == 12:
            return
        if attempts == 11:
            now += MAX_DELAY + 1  # it worked for long: the next error is the first again
        raise ProcessLookupError(f"no such process {attempts}")

    async def sleep(delay: float) -> None:
        nonlocal now
        now += delay
        delays.append(delay)

    with caplog.at_level(logging.ERROR):
        asyncio.run(supervise("stack dumps", work, errors=errors, sleep=sleep))
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 1]
    assert errors.counts == {"stack dumps": 11}
    assert [record.exc_info is not None for record in caplog.records].count(True) == 1
    assert caplog.messages[0] == "stack dumps: no such process 1; it is tried again after 1 s"
    assert 1 < len(caplog.messages) < 8, "every repetition has a line of its own"
    assert "times more" in caplog.messages[1]


def test_cancellation_passes_through() -> None:
    async def body() -> None:
        task = asyncio.create_task(supervise("waiting", asyncio.Event().wait))  # type: ignore[arg-type] # it never returns
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())


def test_tasks_of_a_contained_group_end_alone() -> None:
    errors = ErrorLog()

    async def fail() -> None:
        raise RuntimeError("one")

    async def body() -> str:
        async with ContainedTaskGroup("a probe", errors) as tasks:
            tasks.create_task(fail())
            other = tasks.create_task(asyncio.sleep(0, "other"))
        return str(other.result())

    assert asyncio.run(body()) == "other"
    assert errors.counts == {"a probe": 1}


def test_delays_double_up_to_the_longest() -> None:
    assert [back_off(failures) for failures in (1, 2, 7, 5_000)] == [1.0, 2.0, 60.0, 60.0]
    assert [back_off(failures, 0.005, 960.0) for failures in (1, 2, 5_000)] == [0.005, 0.01, 960.0]
