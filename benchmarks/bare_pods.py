"""What the kernel alone takes for what a pod's process has: namespaces of its own. The floor of rows that count pods.

util-linux makes the namespaces, and nobody speaks of these processes: no API, no store, no files, no addresses.
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
WHAT = "bare processes in namespaces of their own"


def _command(*program: str) -> list[str]:
    return [*UNSHARE, *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), *program]


def run_to_the_end(count: int) -> float:
    """Processes per second that begin and end, as many at a time as there are CPUs."""
    began = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda _: subprocess.run(_command("true"), check=True), range(count)))
    return count / (time.monotonic() - began)


def start_all(count: int) -> float:
    """Seconds until so many of them run at once. They are gone when this returns."""
    started: list[subprocess.Popen[bytes]] = []

    def start(_: int) -> None:
        program = subprocess.Popen(_command("sh", "-c", "echo; exec sleep 600"), stdout=subprocess.PIPE)
        started.append(program)
        assert program.stdout
        if not program.stdout.read(1):
            raise RuntimeError("a bare process ended before it ran")

    began = time.monotonic()
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(start, range(count)))
        return time.monotonic() - began
    finally:
        for program in started:
            program.kill()  # its child goes with it
            program.communicate()
