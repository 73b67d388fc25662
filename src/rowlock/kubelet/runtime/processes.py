"""Programs that run as processes: reads the facts that their shims wrote, and stops them.

Facts are files in `pods/<uid>/<container>/` that shims write (see `shim.py`); they can be read again at any time.
A process is identified by its pid *and* its start time, so a reused pid is never signalled.
"""

import contextlib
import dataclasses
import logging
import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.pod.facts import DATA_DIRECTORY_VARIABLE, LOST_EXIT_CODE, POD_UID_VARIABLE, Exit, Problem, Run
from rowlock.kubelet.shim.fact_files import UNCREATED, ticks, write_fact
from rowlock.objects import is_digits

log = logging.getLogger("rowlock.kubelet")

_START_FACT = re.compile(r"start\.([0-9]{1,9})")
_MAX_TICKS = 1 << 62
_MAX_EXIT_CODE = 255
_MAX_MESSAGE, _MAX_WORD = 4096, 256
"""Most characters of a termination message (as in a kubelet), and of a reason."""


def read_run(directory: Path, number: int) -> Run | None:
    """One run of a container, from disk; None when it was never claimed.

    Programs of this user can write there: malformed values count as unknown."""
    start = untrusted.read_object(f"{directory}/start.{number}")
    if start is None:
        return None
    run = Run(
        number,
        untrusted.integer_of(start, "shim"),
        untrusted.integer_of(start, "shim_ticks", _MAX_TICKS),
        untrusted.integer_of(start, "pid"),
        untrusted.time_of(start, "started"),
        untrusted.integer_of(start, "backoff"),
        container=untrusted.text_of(start, "container", _MAX_WORD),
        directory=str(directory),
    )
    end = _exit_of_fact(untrusted.read_object(f"{directory}/exit.{number}") or {})
    return run if end is None else dataclasses.replace(run, exit=dataclasses.replace(end, container=run.container))


def read_creation_problem(directory: Path, number: int | None) -> Problem | None:
    """Why an engine could not create the container for this run; None = there was no such problem. Removes the fact."""
    path = f"{directory}/{UNCREATED}.{number}"
    why = untrusted.text_of(untrusted.read_object(path) or {}, "why", _MAX_MESSAGE)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return Problem("CreateContainerError", why) if why else None


def _exit_of_fact(fact: Mapping[str, Any]) -> Exit | None:
    """The exit in a fact; None if it lacks a valid code or time."""
    finished, code = untrusted.time_of(fact, "finished"), fact.get("code")
    if finished is None or isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= _MAX_EXIT_CODE:
        return None
    return Exit(
        code,
        untrusted.time_of(fact, "started") or 0.0,
        finished,
        untrusted.integer_of(fact, "signal", _MAX_EXIT_CODE),
        untrusted.text_of(fact, "message", _MAX_MESSAGE),
        untrusted.text_of(fact, "reason", _MAX_WORD),
        passed_on=fact.get("passed_on") is True,
        stop_grace=untrusted.time_of(fact, "stop_grace"),
        stop_took=untrusted.time_of(fact, "stop_took") or 0.0,
        stop_signal=untrusted.integer_of(fact, "stop_signal", signal.NSIG) or signal.SIGTERM,
        used_grace=fact.get("used_grace") is True,
        helpers_overuse=untrusted.text_of(fact, "helpers_overuse", _MAX_MESSAGE),
        reached_pids_limit=fact.get("reached_pids_limit") is True,
    )


def newest_run(directory: Path) -> int | None:
    """The number of a container's newest run; None = it has none."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return max((int(found[1]) for name in names if (found := _START_FACT.fullmatch(name))), default=None)


def is_shim_alive(run: Run) -> bool:
    """Whether the shim that claimed this run is still the process with that pid."""
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
    """Records an exit for a run whose shim died without writing one (kill -9, power loss), as a real kubelet does.

    It is written so that it stays the same after the next restart; after a power loss it is made up again. It is not synced, as the
    event loop would wait for the disk for each lost run."""
    current = read_run(directory, run.number)
    if current is not None and current.exit is not None:
        return current
    message = "The container could not be located when the pod was terminated"
    lost = Exit(LOST_EXIT_CODE, run.started or now, now, 9, message, "ContainerStatusUnknown")
    if directory.is_dir():
        write_fact(str(directory / f"exit.{run.number}"), dataclasses.asdict(lost))
    return dataclasses.replace(run, exit=lost)


def stop_run(run: Run, grace: float) -> None:
    """Asks the shim to end the program: SIGTERM to its first process, SIGKILL to all after `grace` seconds, even if this server dies
    meanwhile."""
    if run.directory:
        with contextlib.suppress(FileNotFoundError):
            write_fact(f"{run.directory}/stop", {"grace": grace})
    if is_shim_alive(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.shim, signal.SIGTERM)


def kill_stopped_shim(run: Run) -> None:
    """Kills a shim that its program has stopped (SIGSTOP), as it can end nothing. What it leaves is handled as for any lost shim."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if is_shim_alive(run) and psutil.Process(run.shim).status() == psutil.STATUS_STOPPED:
            log.warning("the shim of %s has been stopped and is killed", run.directory)
            os.kill(run.shim, signal.SIGKILL)


def find_strays(uids: Iterable[str], data_directory: str) -> list[int]:
    """Processes of these pods that were started from this data directory (`PodDirectories.identity`); used after a shim was
    killed. Slow: reads all of /proc."""
    marks = {f"{POD_UID_VARIABLE}={uid}".encode() for uid in uids}
    own, prefix = f"{DATA_DIRECTORY_VARIABLE}={data_directory}".encode(), f"{DATA_DIRECTORY_VARIABLE}=".encode()
    pids = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if is_digits(name):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
                if not marks.isdisjoint(variables) and all(v == own for v in variables if v.startswith(prefix)):
                    pids.append(int(name))
    return pids


def kill_strays(uids: Iterable[str], data_directory: str) -> int:
    """Kills everything that still runs for these pods; returns the number of processes."""
    pids = find_strays(uids, data_directory)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
