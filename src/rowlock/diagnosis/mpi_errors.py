"""Messages of mpirun and the MPI library in a launcher's log when a rank ends: Open MPI 4 and 5 (PRRTE) name the first rank.

prterun noticed that process rank 1 with PID 23 on node j-worker-1 exited on signal 9 (Killed).
Process name: [prterun-j-launcher-2@1,1]
Exit code:    1
[j-worker-0:23] *** An error occurred in MPI_Recv
[j-worker-0:23] *** MPI_ERR_TRUNCATE: message truncated
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence

from rowlock.diagnosis.log_lines import LogLine, shorten
from rowlock.diagnosis.tracebacks import SECONDARY_ERROR, LoggedError

SEEN_BY_MPIRUN = "as mpirun saw it"
"""The text of an error that mpirun reports about a rank that logged none itself."""
_SIGNALLED = re.compile(
    r"(?:mpirun|mpiexec|prterun|prun) noticed that process rank (\d{1,7}) .{0,300}exited on signal (\d{1,2})\b"
)
_ABORTED = re.compile(r"(?:mpirun|mpiexec|prterun|prun) has exited due to process rank (\d{1,7}) ")
_PROCESS_NAME = re.compile(r"\s*Process name: \[[^\]]{0,300},(\d{1,7})\]")
_EXIT_CODE = re.compile(r"\s*Exit code:\s+(\d{1,3})\b")
_ERROR_PLACE = re.compile(r"\0?(?:\[\S+\] )?\*\*\* An error occurred in (.+)")
_ERROR_CLASS = re.compile(r"(?:\[\S+\] )?\*\*\* (MPI_ERR_\w+): (.+)")


def first_mpi_rank(lines: Sequence[LogLine]) -> int | None:
    """The rank that ended first according to mpirun; None when it names none."""
    found = (each.search(text) for _, text in lines for each in (_SIGNALLED, _ABORTED, _PROCESS_NAME))
    first = next((match for match in found if match), None)
    return int(first[1]) if first is not None else None


def find_mpi_error(lines: Sequence[LogLine]) -> LoggedError | None:
    """What ended the first rank according to MPI or mpirun; None when they report nothing."""
    rank = first_mpi_rank(lines)
    for at, text in lines:
        if signalled := _SIGNALLED.search(text):
            return LoggedError(f"was killed with {_signal_name(int(signalled[2]))}", SEEN_BY_MPIRUN, at, rank=rank)
    places = [(at, found[1]) for at, text in lines if (found := _ERROR_PLACE.match(text))]
    if places:
        at, place = next((each for each in places if not SECONDARY_ERROR.search(each[1])), places[0])
        kinds = [found for _, each in lines if (found := _ERROR_CLASS.match(each))]
        kind, words = (kinds[0][1], f"{kinds[0][2]} in {place}") if kinds else ("MPI error", place)
        return LoggedError(kind, shorten(words), at, rank=rank, secondary=bool(SECONDARY_ERROR.search(words)))
    codes = [(at, int(found[1])) for at, text in lines if rank is not None and (found := _EXIT_CODE.match(text))]
    return LoggedError(f"ended with exit code {codes[0][1]}", SEEN_BY_MPIRUN, codes[0][0], rank=rank) if codes else None


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signals.Signals}
    return known.get(number, f"signal {number}")
