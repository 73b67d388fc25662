"""What a rank does beside its stack: whether it polls the kernel, as Open MPI does while it waits."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from rowlock.diagnosis.activity import Activity, is_polling
from rowlock.diagnostics.rank_activity import read_activity

BEFORE = Activity(cpu=5.0, own_cpu=5.0, transferred=100, wakeups=3, is_in_timer=False, system_cpu=1.0, faults=900)
POLLED = replace(BEFORE, cpu=8.0, own_cpu=8.0, system_cpu=2.0)


@pytest.mark.parametrize(
    ("after", "polls"),
    [
        (POLLED, True),
        (replace(POLLED, system_cpu=1.1), False),
        (replace(POLLED, faults=90_000), False),
        (replace(POLLED, transferred=1 << 20), False),
        (replace(BEFORE, own_cpu=5.01, system_cpu=1.01), False),
    ],
)
def test_who_asks_the_kernel_and_does_nothing_else_polls(after: Activity, polls: bool) -> None:
    assert is_polling(BEFORE, after) == polls


@pytest.mark.parametrize(
    ("program", "polls"),
    [
        ("import os\nwhile True: os.sched_yield(); os.getppid()", True),
        ("value = 1\nwhile True: value = value * 3 % 65537", False),
        ("while True: bytearray(8 << 20)", False),
    ],
)
def test_real_programs(program: str, polls: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            assert worked(process.pid, lambda first, last: is_polling(first, last)) == polls
        finally:
            process.kill()


def worked(pid: int, judge: Callable[[Activity, Activity], bool]) -> bool:
    """The judgement over half a second of its CPU time, once it has begun."""
    deadline = time.monotonic() + 60
    first = read_activity(pid)
    while (last := read_activity(pid)).own_cpu < 1.0:
        assert time.monotonic() < deadline, "it got no CPU"
        first = last if last.own_cpu < 0.4 else first
        time.sleep(0.05)
    return judge(first, last)
