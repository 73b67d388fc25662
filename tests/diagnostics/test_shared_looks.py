"""Who asks for the stack of a process that is looked at gets what that look finds; looks of all who ask have one limit."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.diagnostics import stack_dumps
from rowlock.diagnostics.stack_dumps import StackDump, dump_stacks


def test_sixty_questions_about_the_same_processes_are_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, at_once = list[int](), list[int]()
    under_way = 0

    async def look(pid: int) -> StackDump:
        nonlocal under_way
        under_way += 1
        looked.append(pid)
        at_once.append(under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return StackDump(None, str(pid))

    monkeypatch.setattr(stack_dumps, "dump_stack", look)
    pids = list(range(10))

    async def body() -> list[dict[int, StackDump]]:
        return await asyncio.gather(*(dump_stacks(pids) for _ in range(60)))

    answers = asyncio.run(body())
    assert answers == [{pid: StackDump(None, str(pid)) for pid in pids}] * 60
    assert sorted(looked) == pids and max(at_once) <= stack_dumps._MAX_PARALLEL


def test_who_leaves_ends_no_look_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> str:
        may_end = asyncio.Event()

        async def look(pid: int) -> StackDump:
            await may_end.wait()
            return StackDump(None, "found")

        monkeypatch.setattr(stack_dumps, "dump_stack", look)
        first, second = asyncio.create_task(dump_stacks([7])), asyncio.create_task(dump_stacks([7]))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        may_end.set()
        return (await second)[7].blind

    assert asyncio.run(body()) == "found"
