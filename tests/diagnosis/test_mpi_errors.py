"""What mpirun says of a rank that ended, and what MPI's own errors say."""

from __future__ import annotations

import pytest

from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.root_cause import RankFailure, incident_sentence

FIRST = "prterun detected that one or more processes exited with non-zero status,\nthus causing the job to be terminated. The first process to do so was:\n"
CODE = FIRST + "\n   Process name: [prterun-j-launcher-2@1,3]\n   Exit code:    7\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 9, in <module>\nValueError: no rows\n'
KILLED = "prterun noticed that process rank 2 with PID 23 on node j-worker-1 exited on signal 9 (Killed).\n"
KILLED_4 = (
    "mpirun noticed that process rank 2 with PID 0 on node j-worker-1 exited on signal 11 (Segmentation fault).\n"
)
TRUNCATED = (
    "[j-worker-0:23] *** An error occurred in MPI_Recv\n[j-worker-0:23] *** reported by process [18,0]\n"
    "[j-worker-0:23] *** MPI_ERR_TRUNCATE: message truncated\n"
)
CLOSED = (
    "[j-worker-0:00000] *** An error occurred in Socket closed\n[j-worker-0:00000] *** Unknown error\n"
    'prterun has exited due to process rank 0 with PID 23 on node j-worker-0 calling\n"abort". This may have caused\n----\n\0\n'
)


@pytest.mark.parametrize(
    ("log", "rank", "text", "secondary"),
    [
        (CODE, 3, "ended with exit code 7: as mpirun saw it", False),
        (TRACEBACK + CODE, 3, "ValueError: no rows (a.py:9)", False),
        (KILLED, 2, "was killed with SIGKILL: as mpirun saw it", False),
        (KILLED_4, 2, "was killed with SIGSEGV: as mpirun saw it", False),
        (TRUNCATED, None, "MPI_ERR_TRUNCATE: message truncated in MPI_Recv", False),
        (CLOSED, 0, "MPI error: Socket closed", True),
    ],
)
def test_what_mpirun_tells(log: str, rank: int | None, text: str, secondary: bool) -> None:
    found = find_error(log)
    assert found is not None
    assert (found.rank, str(found), found.secondary) == (rank, text, secondary)


def test_a_log_without_them_tells_nothing() -> None:
    assert find_error("step 3\nExit code: 0\n") is None


def test_the_sentence_names_the_rank() -> None:
    failure = RankFailure("launcher-0", "j-launcher", "n1", 137, 1.0, 5.0, trouble=find_error(KILLED))
    assert (
        incident_sentence([failure])
        == "rank 2 (pod j-launcher, node n1) was killed with SIGKILL after 4.0 s, as mpirun saw it."
    )
