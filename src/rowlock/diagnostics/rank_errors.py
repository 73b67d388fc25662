"""What running ranks have written into torch's error file: of one that failed and does not end, that is why the others wait.

The file lies where the rank's own variable says, in its own file system; the rank may have put anything there.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Iterable

from rowlock.diagnosis.error_reports import MAX_REPORT_BYTES, parse_error_report
from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.diagnostics.rank_processes import RankProcess, read_environ
from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.worker.error_files import VARIABLE
from rowlock.objects import uid

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_STEP = 1.0
"""Seconds by which a file may seem older than its process."""


def read_rank_errors(ranks: Iterable[RankProcess]) -> dict[int, LoggedError]:
    """By pid, of those ranks that have an error file of their own: MPI's launchers give all of a pod the same, and nobody knows whose it is."""
    paths = {
        rank: (uid(rank.running_pod.pod), read_environ(rank.pid).get(VARIABLE.encode(), b"").decode(errors="replace"))
        for rank in ranks
    }
    counts = Counter(paths.values())
    errors = {rank.pid: _read_error(rank, path) for rank, (pod, path) in paths.items() if counts[pod, path] == 1}
    return {pid: error for pid, error in errors.items() if error is not None}


def _read_error(rank: RankProcess, path: str) -> LoggedError | None:
    """No link is followed, nothing is waited for, and a file that is older than the process is that of an earlier one."""
    if not path.startswith("/"):
        return None
    try:
        with beneath.open_directory(f"/proc/{rank.pid}/root") as root:
            fd = beneath.open_beneath(root, path.lstrip("/"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_mtime < _start_time(rank) - _CLOCK_STEP or not rank.is_alive:
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return parse_error_report(untrusted.parse_object(file.read(MAX_REPORT_BYTES)))


def _start_time(rank: RankProcess) -> float:
    """In seconds since 1970."""
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - rank.start_ticks / _TICKS_PER_SECOND)
