"""Observes running processes: whether they compute, and where their code is.

The user's program needs no support for this and is not affected. `/proc` tells state and CPU; py-spy reads the Python
stack from outside, without pausing the process: a pause ends system calls that have a time limit (a `recv` with
SO_RCVTIMEO returns EINTR), and a library that does not expect that fails. The stack of a process that keeps running can be read in an
inconsistent state; then it is read again. When py-spy is missing or not permitted, the reason is returned instead.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from rowlock.diagnosis import stacks
from rowlock.diagnosis.stacks import Stack
from rowlock.diagnostics.rank_processes import has_no_python
from rowlock.kubelet.shim.process_tree import descendants

_DUMP_TIMEOUT = 5.0
_MAX_PARALLEL = 4
_THREADS = ThreadPoolExecutor(_MAX_PARALLEL, "py-spy")
_TRIES = 4
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class StackDump:
    """A stack, or in `blind` why there is none."""

    stack: Stack | None
    blind: str = ""


def process_state(pid: int) -> str:
    """The process's state letter, as in /proc; "" when it has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    return ""


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process and its descendants since their start."""
    return sum(own_cpu_seconds(pid) for pid in (root, *descendants(root)))


def own_cpu_seconds(pid: int) -> float:
    """CPU seconds of one process since its start; 0 when it has ended."""
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    return 0.0


def process_name(pid: int) -> str:
    """The process's `comm` name; "" when it has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode(errors="replace").strip()
    return ""


def find_py_spy() -> str:
    """The path of py-spy; "" when it is not installed."""
    beside_python = Path(sys.executable).parent / "py-spy"
    return str(beside_python) if beside_python.exists() else shutil.which("py-spy") or ""


async def dump_stacks(pids: list[int]) -> dict[int, StackDump]:
    """The stack of each process by pid; at most `_MAX_PARALLEL` are read at a time, over all callers."""
    looks = _LOOKS.setdefault(asyncio.get_running_loop(), _Looks())
    return dict(zip(pids, await asyncio.gather(*map(looks.look, pids)), strict=True))


class _Looks:
    """The dumps in progress. A second call for the same process waits for the result of the first."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_MAX_PARALLEL)
        self._under_way: dict[int, asyncio.Task[StackDump]] = {}

    async def look(self, pid: int) -> StackDump:
        task = self._under_way.get(pid)
        if task is None:
            task = self._under_way[pid] = asyncio.create_task(self._dump(pid))
        return await asyncio.shield(task)  # cancelling one caller must not cancel the dump for the others

    async def _dump(self, pid: int) -> StackDump:
        try:
            async with self._free:
                return await dump_stack(pid)
        finally:
            del self._under_way[pid]


_LOOKS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Looks] = WeakKeyDictionary()


async def dump_stack(pid: int) -> StackDump:
    """The stack of one process, or why it cannot be read."""
    tool = find_py_spy()
    if not tool:
        return StackDump(None, "py-spy is not installed where rowlock runs (`pip install py-spy`)")
    if await asyncio.to_thread(has_no_python, pid):  # reading /proc/…/maps blocks while the process maps memory
        return StackDump(None, "they are not Python programs")
    dump = StackDump(None)
    for _ in range(_TRIES):
        dump = await _run_py_spy(tool, pid)
        if (dump.stack is not None and dump.stack.frames) or not process_state(pid):
            break
    if (dump.stack is not None and not dump.stack.frames) or stacks.NO_INTERPRETER in dump.blind:
        return StackDump(None, stacks.NO_CALL)
    return dump


async def dump_variables(pid: int) -> object:
    """The stacks of a process as py-spy's JSON, with the variables of every call; None where they cannot be read."""
    tool = find_py_spy()
    return (await _ask_py_spy(tool, pid, "--locals"))[0] if tool else None


async def _run_py_spy(tool: str, pid: int) -> StackDump:
    answer, reason = await _ask_py_spy(tool, pid)
    return StackDump(None, reason) if reason else StackDump(stacks.parse_stack(answer))


def _run_tool(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    """One call of py-spy. It is killed after `_DUMP_TIMEOUT` seconds; `subprocess` has an error of its own for that."""
    return subprocess.run(command, capture_output=True, env=env, timeout=_DUMP_TIMEOUT, check=False)


async def _ask_py_spy(tool: str, pid: int, *flags: str) -> tuple[object, str]:
    """py-spy's JSON, and "" or why there is none."""
    command = [tool, "dump", "--json", "--nonblocking", *flags, "--pid", str(pid)]
    env = {**os.environ, "RUST_BACKTRACE": "0"}  # so that its last line is the error
    try:  # in a thread: an asyncio subprocess whose start is cancelled, as by a server that stops, may never report its end
        done = await asyncio.get_running_loop().run_in_executor(_THREADS, _run_tool, command, env)
    except subprocess.TimeoutExpired:
        return None, f"py-spy did not answer within {_DUMP_TIMEOUT:.0f} s"
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return None, f"py-spy: {lines[-1].strip() if lines else 'it failed without a message'}"
    try:
        return json.loads(done.stdout), ""
    except (ValueError, RecursionError):
        return None, "py-spy's answer cannot be read"
