"""Programs that run as processes: what their shims wrote down about them, and how they are stopped.

Facts are files in `pods/<uid>/<container>/` that shims write (see `shim.py`); everything here can be forgotten and
read again. A process is known by its pid *and* its start time, so a reused pid is never signalled.
"""

import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rowlock.kubelet.pod.facts import DATA_DIRECTORY_VARIABLE, LOST_EXIT_CODE, POD_UID_VARIABLE, Exit, Run
from rowlock.kubelet.shim.fact_files import ticks, write_fact


def read_run(directory: Path, number: int) -> Run | None:
    """One life of a container, from disk; None when it was never claimed."""
    start, end = _read_fact(directory / f"start.{number}"), _read_fact(directory / f"exit.{number}")
    if start is None:
        return None
    run = Run(
        number,
        int(start.get("shim", 0)),
        int(start.get("shim_ticks", 0)),
        int(start.get("pid", 0)),
        start.get("started"),
        int(start.get("backoff", 0)),
        container=str(start.get("container", "")),
    )
    return (
        run
        if not end
        else dataclasses.replace(run, exit=dataclasses.replace(_exit_of_fact(end), container=run.container))
    )


def _exit_of_fact(fact: dict[str, Any]) -> Exit:
    return Exit(
        int(fact["code"]),
        float(fact["started"]),
        float(fact["finished"]),
        int(fact.get("signal", 0)),
        str(fact.get("message", "")),
        str(fact.get("reason", "")),
    )


def _read_fact(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_bytes() or b"{}"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {}


def newest_run(directory: Path) -> int | None:
    """The number of the newest life of a container; None when it has none."""
    try:
        numbers = [int(name[6:]) for name in os.listdir(directory) if name.startswith("start.") and name[6:].isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return max(numbers, default=None)


def is_shim_alive(run: Run) -> bool:
    """Is the shim that claimed this run still the process with that pid?"""
    if run.shim <= 0:
        return False
    if os.path.isdir("/proc/self"):
        return ticks(run.shim) == run.shim_ticks
    try:
        os.kill(run.shim, 0)
    except OSError:
        return False
    return True


def record_lost_run(directory: Path, run: Run, now: float) -> Run:
    """A shim that died without a word (kill -9 on it, power): its end is made up, as a real kubelet does.

    Written down, so that the story stays the same after the next restart."""
    current = read_run(directory, run.number)
    if current is not None and current.exit is not None:
        return current
    message = "The container could not be located when the pod was terminated"
    fact = {"code": LOST_EXIT_CODE, "signal": 9, "started": run.started or now, "finished": now, "message": message}
    fact["reason"] = "ContainerStatusUnknown"
    if directory.is_dir():
        write_fact(str(directory / f"exit.{run.number}"), fact, durable=True)
    return dataclasses.replace(run, exit=_exit_of_fact(fact))


def stop_run(directory: Path, run: Run, grace: float) -> None:
    """Asks the shim to end the program: SIGTERM to its tree, SIGKILL after `grace`. It does so even if we die now."""
    with contextlib.suppress(FileNotFoundError):
        write_fact(str(directory / "stop"), {"grace": grace})
    if is_shim_alive(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.shim, signal.SIGTERM)


def find_strays(uids: Iterable[str], data_directory: str) -> list[int]:
    """Processes of one of these pods, started from this data directory (`PodDirectories.identity`); for after a shim was
    killed. Slow: reads all of /proc."""
    marks = {f"{POD_UID_VARIABLE}={uid}".encode() for uid in uids}
    own, prefix = f"{DATA_DIRECTORY_VARIABLE}={data_directory}".encode(), f"{DATA_DIRECTORY_VARIABLE}=".encode()
    pids = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdecimal():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
                if not marks.isdisjoint(variables) and all(v == own for v in variables if v.startswith(prefix)):
                    pids.append(int(name))
    return pids


def kill_strays(uids: Iterable[str], data_directory: str) -> int:
    """SIGKILL for everything that still runs for these pods; how many there were."""
    pids = find_strays(uids, data_directory)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
