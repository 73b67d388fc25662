"""Looks at processes while they run: whether they compute, where their code stands.

Nothing is asked of the user's program, and nothing is done to it. `/proc` tells state and CPU; py-spy reads the Python
stack from outside, without pausing the process: a pause ends system calls that have a time limit (a `recv` with
SO_RCVTIMEO answers EINTR), and a library that does not expect that fails for it. A process that runs on while it is read
can be caught in a muddle; then it is read again. Where py-spy may not or is not there, the reason comes back instead.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rowlock.cluster.inquest.rank_processes import without_python
from rowlock.cluster.node.kin import descendants
from rowlock.verdicts import stacks
from rowlock.verdicts.stacks import Stack

_PATIENCE = 5.0
_AT_ONCE = 4
_TRIES = 4
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Shot:
    """A stack, or why there is none."""

    stack: Stack | None
    blind: str = ""


def state(pid: int) -> str:
    """The process's state letter, as in /proc; "" when it has gone."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    return ""


def cpu_seconds(root: int) -> float:
    """CPU time of a process and all below it, since they began."""
    total = 0
    for pid in (root, *descendants(root)):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICK


def spy() -> str:
    """Where py-spy is; "" when it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


async def shots(pids: list[int]) -> dict[int, Shot]:
    """The stack of each process, some at a time."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(pid: int) -> Shot:
        async with turn:
            return await shot(pid)

    return dict(zip(pids, await asyncio.gather(*(one(pid) for pid in pids)), strict=True))


async def shot(pid: int) -> Shot:
    """One process's stack."""
    tool = spy()
    if not tool:
        return Shot(None, "py-spy is not installed where rowlock runs (`pip install py-spy`)")
    if without_python(pid):
        return Shot(None, "they are no Python programs")
    found = Shot(None)
    for _ in range(_TRIES):
        found = await _read(tool, pid)
        if (found.stack is not None and found.stack.frames) or not state(pid):
            break
    return found


async def _read(tool: str, pid: int) -> Shot:
    words = [tool, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    run = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        said, complaint = await asyncio.wait_for(run.communicate(), _PATIENCE)
    except TimeoutError:
        run.kill()
        await run.wait()
        return Shot(None, f"py-spy did not answer within {_PATIENCE:.0f} s")
    if run.returncode:
        lines = complaint.decode(errors="replace").strip().splitlines()
        return Shot(None, f"py-spy: {lines[-1].strip() if lines else 'it failed without a word'}")
    return Shot(stacks.stack(json.loads(said)))
