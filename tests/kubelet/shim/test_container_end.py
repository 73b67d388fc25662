"""How the program of an engine's container is asked to end: here below an init of ours, in `tests/containers` below an engine's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from rowlock.kubelet.images.images import signal_number
from rowlock.kubelet.shim.engine.container_end import ContainerStop

INIT = """
import os, subprocess, sys
program = subprocess.Popen(sys.argv[1:])
while True:
    pid, status = os.wait()
    if pid == program.pid:
        sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""
SAVES = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
TERM = 15


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", INIT, *words], stdout=subprocess.PIPE, text=True) as init:
        try:
            yield init
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [*psutil.Process(init.pid).children(recursive=True), psutil.Process(init.pid)]:
                    process.kill()


def asked_to_end(init: subprocess.Popen[str]) -> list[int]:
    """Who was asked in the program's place, once everything has ended."""
    stop = ContainerStop(init.pid, TERM, has_init=True)
    assert stop.begin()

    def is_over() -> bool:
        stop.ask_more()
        return init.poll() is not None

    until(is_over)
    return stop.asked


@pytest.mark.parametrize("shell", [["sh", "-c"], ["bash", "-c"]])
@pytest.mark.parametrize("more", ["; echo not reached", "; sh -c 'sleep 600'; true"])
def test_a_shell_dies_of_the_signal_after_what_it_waits_for_has_saved(shell: list[str], more: str) -> None:
    with started(*shell, f'bash -c "{SAVES}"{more}') as init:
        assert init.stdout is not None and init.stdout.readline() == "ready\n"
        asked = asked_to_end(init)
        assert init.stdout.read() == "saved\n" and init.returncode == 128 + TERM
        assert len(asked) == 1


def test_who_handles_or_ignores_the_signal_is_left_to_the_engine(tmp_path: Path) -> None:
    for script in (SAVES, "trap '' TERM; echo ready; sleep 600; true"):
        with started("bash", "-c", script) as init:
            assert init.stdout is not None and init.stdout.readline() == "ready\n"
            assert not ContainerStop(init.pid, TERM, has_init=True).begin()


def test_a_program_that_waits_for_nobody_is_left_to_the_engine() -> None:
    with started("sleep", "600") as init:
        until(lambda: [p.name() for p in psutil.Process(init.pid).children()] == ["sleep"])
        assert not ContainerStop(init.pid, TERM, has_init=True).begin()
    assert not ContainerStop(init.pid, TERM, has_init=True).begin()  # has ended


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SIGINT", 2), ("usr1", 10), ("15", 15), ("SIGRTMIN+3", 37), ("RTMAX-1", 63), ("SIGRTMIN", 34), ("0", None), ("65", None),
        ("SIGINT+1", None), ("SIGRTMIN-1", None), ("SIGRTMIN+90", None), ("SIGRTMIN+", None), ("SIG_DFL", None), ("", None), ("NSIG", None),
    ],
)  # fmt: skip
def test_stop_signals_have_the_names_of_dockerfiles(text: str, number: int | None) -> None:
    assert signal_number(text) == number
