"""Reads torch's error files of running ranks: if a rank has failed without ending, its error is why the others wait.

The path is in the rank's environment, and refers to the rank's own file system. Content and path are untrusted.
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
"""Seconds by which a file may appear older than its process."""
_ATTEMPT = re.compile(r"(/.*/attempt_)([0-9]{1,6})/[0-9]{1,6}/[^/]+")
"""torchrun's path for a rank's error file: a directory for each start of its ranks, and below it one for each local rank."""
_MAX_LOCAL_RANKS = 64
_LOG_BYTES = 16 * 1024
Restart = tuple[int, LoggedError | None]
"""How often torchrun has restarted a rank, and the error before the last restart, if known; its `rank` is the local rank that failed."""


def read_rank_errors(ranks: Iterable[RankProcess]) -> dict[int, LoggedError]:
    """Errors by pid, for ranks with an error file of their own. MPI's launchers give all ranks of a pod one file: it is ignored."""
    paths = {rank: (uid(rank.running_pod.pod), _error_file(rank)) for rank in ranks}
    counts = Counter(paths.values())
    own = [(rank, path) for rank, (pod, path) in paths.items() if counts[pod, path] == 1]
    reports = {rank.pid: _read_report(rank, path, _start_time(rank) - _CLOCK_STEP) for rank, path in own}
    return {pid: error for pid, (_, error) in reports.items() if error is not None}


def read_logged_errors(ranks: Iterable[RankProcess], now: float) -> dict[int, LoggedError]:
    """By pid, the error at the end of the log of a rank's pod, if nothing was written for `MIN_SILENCE`. In a log of several ranks it
    counts for the rank that it names, or, if it names none, as under mpirun, for all of them."""
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
    """By pid, the restarts of ranks under torchrun; only the first local rank of each pod has the error."""
    found = {rank: _ATTEMPT.fullmatch(_error_file(rank)) for rank in ranks}
    again = {rank: match for rank, match in found.items() if match and int(match[2])}
    return {rank.pid: (int(match[2]), _read_earlier_error(rank, match)) for rank, match in again.items()}


def _read_earlier_error(rank: RankProcess, attempt: re.Match[str]) -> LoggedError | None:
    """The error of the first local rank that failed before the last restart; None for other than local rank 0."""
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
    """mtime and error of a report in the rank's file system; (0, None) on errors. Follows no links; ignores files from before `since`."""
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
    """When the process started, in seconds since 1970."""
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - rank.start_ticks / _TICKS_PER_SECOND)
