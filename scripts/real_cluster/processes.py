"""Programs in the background of a directory: each logs to a file there and is remembered by pid and start time.

`stop` ends only processes that are still the ones it started: a pid alone may have been given to somebody else.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PIDS = "pids.json"
GRACE_S = 10.0


def launch(where: Path, name: str, command: Sequence[object], env: Mapping[str, str] | None = None) -> int:
    """Start a program that outlives us; its output goes to `<where>/<name>.log`."""
    with (where / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(
            [str(part) for part in command], cwd=where, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
    known = _known(where)
    known.append({"name": name, "pid": started.pid, "born": _born(started.pid)})
    (where / PIDS).write_text(json.dumps(known))
    return started.pid


def stop(where: Path, only: str = "") -> None:
    """End what was launched here, last first (or one of them), and wait until it is gone."""
    keep = []
    for entry in reversed(_known(where)):
        if only and entry["name"] != only:
            keep.append(entry)
        else:
            _end(int(str(entry["pid"])), str(entry["born"]))
    if where.is_dir():
        (where / PIDS).write_text(json.dumps(keep[::-1]))


def runs(where: Path, name: str) -> bool:
    """Whether the last program launched here by this name has not ended."""
    pids = [(int(str(entry["pid"])), entry["born"]) for entry in _known(where) if entry["name"] == name]
    return bool(pids) and _born(pids[-1][0]) == pids[-1][1] != ""


def until(what: str, ready: Callable[[], bool], *, seconds: float = 60.0, log: Path | None = None) -> None:
    """Ask until it is so. Raises TimeoutError with the first errors and the end of the program's log."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            text = log.read_text(errors="replace") if log and log.exists() else ""
            errors = [line for line in text.splitlines() if "error" in line.lower()][:5]
            raise TimeoutError("\n".join([f"{what} was not ready after {seconds:.0f} s.", *errors, "…", text[-1500:]]))
        time.sleep(0.1)


def _known(where: Path) -> list[dict[str, object]]:
    try:
        found: list[dict[str, object]] = json.loads((where / PIDS).read_text())
    except FileNotFoundError:
        return []
    return found


def _born(pid: int) -> str:
    """Start time in clock ticks since boot, "" when the process is gone or dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _end(pid: int, born: str) -> None:
    deadline = time.monotonic() + GRACE_S
    sign = signal.SIGTERM
    while born and _born(pid) == born:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
        while time.monotonic() < deadline and _born(pid) == born:
            time.sleep(0.02)
        sign, deadline = signal.SIGKILL, time.monotonic() + GRACE_S
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)  # our own child when up and down run in one process
