"""py-spy that answers late, or goes just when it is to be ended: a look into a process never ends more than itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rowlock.diagnostics import stack_dumps


def a_tool(place: Path, script: str) -> Callable[[], str]:
    tool = place / "py-spy"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return lambda: str(tool)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_dumps, "_DUMP_TIMEOUT", 0.5)
    monkeypatch.setattr(stack_dumps, "has_no_python", lambda pid: False)


def test_a_tool_that_does_not_answer_is_ended_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, start = list[int](), subprocess.Popen.__init__

    def note(process: Any, *args: Any, **more: Any) -> None:
        start(process, *args, **more)
        made.append(process.pid)

    monkeypatch.setattr(subprocess.Popen, "__init__", note)
    monkeypatch.setattr(stack_dumps, "find_py_spy", a_tool(tmp_path, "exec sleep 100000"))
    monkeypatch.setattr(stack_dumps, "_TRIES", 1)
    assert "did not answer within" in asyncio.run(stack_dumps.dump_stack(os.getpid())).blind
    (tool,) = made
    assert not psutil.pid_exists(tool)


def test_a_tool_that_ends_while_it_is_ended_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill()` of a process that has gone raises ProcessLookupError: it once ended the whole server."""
    kill = subprocess.Popen.send_signal

    def kill_twice(process: Any, number: int) -> None:
        kill(process, number)
        process.wait()
        kill(process, number)  # the race, every time

    monkeypatch.setattr(subprocess.Popen, "send_signal", kill_twice)
    monkeypatch.setattr(stack_dumps, "find_py_spy", a_tool(tmp_path, "exec sleep 100000"))
    found = asyncio.run(stack_dumps.dump_stacks([os.getpid(), os.getppid()]))
    assert all("did not answer within" in dump.blind for dump in found.values())


@pytest.mark.parametrize("turns", range(8))
def test_a_server_that_stops_while_a_tool_starts_ends(tmp_path: Path, turns: int) -> None:
    """An asyncio subprocess that was cancelled during its start waited for ever, and with it the server."""

    async def stop() -> None:
        look = asyncio.create_task(stack_dumps._ask_py_spy(a_tool(tmp_path, "exec true")(), os.getpid()))
        for _ in range(turns):
            await asyncio.sleep(0)
        look.cancel()
        await asyncio.wait([look], timeout=200)
        assert look.done()

    asyncio.run(stop())


@pytest.mark.parametrize("said", ["", "{", "null", "[" * 20_000, '[{"frames": [{}]}]', "\\0"])
def test_a_tool_may_say_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    (tmp_path / "said").write_text(said)
    monkeypatch.setattr(stack_dumps, "find_py_spy", a_tool(tmp_path, f"cat {tmp_path}/said"))
    dump = asyncio.run(stack_dumps.dump_stack(os.getpid()))
    assert dump.stack is None or not dump.stack.frames or dump.stack.frames[0].function is not None
    str(dump).encode()
