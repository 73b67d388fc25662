"""What running ranks have written into torch's error file: of one that failed and does not end, that is why the others wait.

The file lies where the rank's own variable says, in its own file system; the rank may have put anything there.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rowlock.diagnosis.hang import MIN_SILENCE
from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.diagnostics.rank_failures import read_error_file
from rowlock.diagnostics.rank_processes import RankProcess, read_environ
from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.worker.error_files import FILE_NAME, VARIABLE
from rowlock.objects import uid

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_STEP = 1.0
"""Seconds by which a file may seem older than its process."""
_ATTEMPT = re.compile(r"(/.*/attempt_)([0-9]{1,6})/[0-9]{1,6}/[^/]+")
"""Where torchrun lets a rank write: a directory for each time that it started its ranks, and below it one for each local rank."""
_MAX_LOCAL_RANKS = 64
_LOG_BYTES = 16 * 1024
Restart = tuple[int, LoggedError | None]
"""How often torchrun has started a rank again, and why the last time, where that is known: `rank` is the local rank that failed."""


def read_rank_errors(ranks: Iterable[RankProcess]) -> dict[int, LoggedError]:
    """By pid, of those ranks that have an error file of their own: MPI's launchers give all of a pod the same, and nobody knows whose it is."""
    paths = {rank: (uid(rank.running_pod.pod), _error_file(rank)) for rank in ranks}
    counts = Counter(paths.values())
    own = [(rank, path) for rank, (pod, path) in paths.items() if counts[pod, path] == 1]
    reports = {rank.pid: _read_report(rank, path, _start_time(rank) - _CLOCK_STEP) for rank, path in own}
    return {pid: error for pid, (_, error) in reports.items() if error is not None}


def read_logged_errors(ranks: Iterable[RankProcess], now: float) -> dict[int, LoggedError]:
    """By pid, the error with which the log of a rank's pod ends, where nothing was written since. The log of several ranks counts for
    the one that the error names; where it names none, as under mpirun, for all: whose it is other evidence tells."""
    by_log: dict[Path, list[RankProcess]] = {}
    for rank in ranks:
        if now - rank.running_pod.last_output_time() > MIN_SILENCE:
            by_log.setdefault(rank.running_pod.log, []).append(rank)
    found: dict[int, LoggedError] = {}
    for log, members in by_log.items():
        error = find_error(untrusted.read_tail(str(log), _LOG_BYTES).decode(errors="replace"))
        if error is not None:
            named = [rank for rank in members if error.rank is None or rank.name == f"rank {error.rank}"]
            found |= dict.fromkeys((rank.pid for rank in named), error)
    return found


def read_restarts(ranks: Iterable[RankProcess]) -> dict[int, Restart]:
    """By pid, of ranks that torchrun has started again; why is told with the first rank of each pod."""
    found = {rank: _ATTEMPT.fullmatch(_error_file(rank)) for rank in ranks}
    again = {rank: match for rank, match in found.items() if match and int(match[2])}
    return {rank.pid: (int(match[2]), _read_earlier_error(rank, match)) for rank, match in again.items()}


def _read_earlier_error(rank: RankProcess, attempt: re.Match[str]) -> LoggedError | None:
    """What the first local rank that failed before the last start wrote."""
    if read_environ(rank.pid).get(b"LOCAL_RANK") != b"0":
        return None
    earlier = f"{attempt[1]}{int(attempt[2]) - 1}"
    reports = [_read_report(rank, f"{earlier}/{local}/{FILE_NAME}") for local in range(_MAX_LOCAL_RANKS)]
    written = [(at, local, error) for local, (at, error) in enumerate(reports) if error is not None]
    _, local_rank, error = min(written, default=(0.0, 0, None), key=lambda each: each[:2])
    return error and replace(error, rank=local_rank)


def _error_file(rank: RankProcess) -> str:
    return read_environ(rank.pid).get(VARIABLE.encode(), b"").decode(errors="replace")


def _read_report(rank: RankProcess, path: str, since: float = 0.0) -> tuple[float, LoggedError | None]:
    """When it was written, and what it says. No link is followed, nothing is waited for, and a file from before `since` is not read."""
    directory, _, name = path.rpartition("/")
    if not path.startswith("/"):
        return 0.0, None
    try:
        with (
            beneath.open_directory(f"/proc/{rank.pid}/root") as root,
            beneath.open_directory(directory.lstrip("/"), beneath=root) as fd,
        ):
            place = f"/proc/self/fd/{fd}/{name}"
            written = os.stat(place, follow_symlinks=False).st_mtime
            is_own = written >= since and rank.is_alive
            return written, read_error_file(Path(place)) if is_own else None
    except OSError:
        return 0.0, None


def _start_time(rank: RankProcess) -> float:
    """In seconds since 1970."""
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - rank.start_ticks / _TICKS_PER_SECOND)
