"""Runs the ranks of one run as processes of this machine, with the variables that torchrun would set."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_POLL_INTERVAL = 0.02
_END_TIMEOUT = 10.0
"""Seconds between SIGTERM and SIGKILL for remaining ranks, and seconds that ranks get to end after another rank has failed."""


def run_ranks(
    command: Sequence[str], world_size: int, variables: Mapping[str, str], logs: Path, timeout: float
) -> list[int | None]:
    """Run a program as `world_size` ranks until all have ended. Returns their exit codes, None for a rank that was killed because
    another rank had failed. Each rank's output goes to `logs/rank-N.log`. Raises FileNotFoundError when the program does not
    exist."""
    logs.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world_size):
            environment = {**os.environ, **variables, **_rank_variables(rank, world_size, port)}
            with (logs / f"rank-{rank}.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        _wait(processes, time.monotonic() + timeout)
        return [process.poll() for process in processes]
    finally:
        _end(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait until all have ended, one has failed and the others had `_END_TIMEOUT` to notice, or the deadline has passed."""
    grace = 0.0
    while (codes := [process.poll() for process in processes]).count(None):
        now = time.monotonic()
        if any(codes) and not grace:
            grace = now + _END_TIMEOUT
        if now > deadline or (grace and now > grace):
            return
        time.sleep(_POLL_INTERVAL)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the remaining processes: SIGTERM, then SIGKILL. Another Ctrl-C meanwhile kills them at once."""
    try:
        _send(signal.SIGTERM, processes)
    finally:
        _send(signal.SIGKILL, processes)


def _send(number: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _END_TIMEOUT
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, number)
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _rank_variables(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
