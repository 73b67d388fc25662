"""Stores failures of ranks as soon as they are known: pods are deleted and logs rotate, the record stays.

One file per job, `deaths/<uid of the job>.jsonl`, one failure per line; it is read after a restart of the server, so that no
failure is written twice. Kept for the newest jobs only.
"""

import contextlib
from pathlib import Path

from rowlock.diagnosis.error_reports import MAX_REPORT_BYTES, parse_error_report
from rowlock.diagnosis.log_errors import find_error, last_words
from rowlock.diagnosis.root_cause import RankFailure, ending_signal, failure_from_dict
from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.diagnostics.job_records import JobRecords
from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.worker import error_files
from rowlock.objects import Object, dig, name
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import desired_pods, main_container_name

_MAX_FAILURES_PER_JOB = 2000
"""Failures that are kept for each job: a job that crashes forever fails the same way each time."""
_TAIL_BYTES = 64 * 1024


class RankFailureStore:
    """The files of rank failures, one per job, in the directory `deaths` of the data directory."""

    def __init__(self, data: Path) -> None:
        self._records = JobRecords(data / "deaths", failure_from_dict)

    def failures_of(self, job: str) -> list[RankFailure]:
        """All failures of the ranks of a job (its uid), in the order in which they were recorded."""
        return self._records.of(job)

    def add(self, job: str, failure: RankFailure) -> bool:
        """Store a failure. False when it is already stored, or the job has too many."""
        failures = self.failures_of(job)
        if len(failures) >= _MAX_FAILURES_PER_JOB or any(
            (d.pod, d.run, d.started) == (failure.pod, failure.run, failure.started) for d in failures
        ):
            return False
        self._records.add(job, failure, failure.to_dict())
        return True

    def prune_old_jobs(self) -> None:
        """Keeps the files of the newest jobs."""
        self._records.prune_old_jobs()


def failure_of_run(job: Object, pod: Object, run: Run, directory: Path) -> RankFailure | None:
    """The failure of one run of a container, from its exit and its log; None when it succeeded."""
    if run.exit is None or run.exit.code == 0:
        return None
    was_stopped = bool((untrusted.read_object(str(directory / f"exit.{run.number}")) or {}).get("stopped"))
    error = (
        None
        if run.exit.reason == "StartError"
        else find_run_error(directory, run.number, ending_signal(run.exit.code, run.exit.signal), run.exit.code)
    )
    return RankFailure(
        rank=_rank_name(job, pod, directory.name),
        pod=name(pod),
        node=str(dig(pod, "spec.nodeName", "")),
        code=run.exit.code,
        started=run.exit.started,
        finished=run.exit.finished,
        run=run.number,
        signal=run.exit.signal,
        stopped=was_stopped,
        reason=run.exit.reason,
        message=run.exit.message if run.exit.reason in ("OOMKilled", "StartError") else "",
        trouble=error,
        shortage=NO_MORE_PROCESSES if run.exit.reached_pids_limit else "",
        said=""
        if error or run.exit.reason == "StartError"
        else last_words(_read_tail(directory / f"log.{run.number}"), run.exit.code),
        ranks=desired_pods(job),
    )


NO_MORE_PROCESSES = "its container had as many processes and threads as it may have (--pids-limit)"
"""The `shortage` of a rank that reached its limit of processes."""


def _rank_name(job: Object, pod: Object, container: str) -> str:
    """The name of the rank, with the container if it is not the main one."""
    label = ranks.rank_label(job, pod)
    return label if main_container_name(job, pod) == container else f"container {container} of {label}"


def find_run_error(directory: Path, number: int, signal: int = 0, code: int = 0) -> LoggedError | None:
    """The error in torch's error file (programs under `@record` and torchrun write one), else in the log."""
    reported = read_error_file(directory / f"error.{number}.json") or _read_foreign_error(directory, number)
    return reported or find_error(_read_tail(directory / f"log.{number}"), signal, code)


def _read_foreign_error(directory: Path, number: int) -> LoggedError | None:
    """The error file that a program of another user left in the directory of its run."""
    with contextlib.suppress(OSError), beneath.open_directory(str(directory)) as outer:
        with beneath.open_directory(error_files.directory_of_run(directory, number).name, beneath=outer) as fd:
            return read_error_file(Path(f"/proc/self/fd/{fd}/{error_files.FILE_NAME}"))
    return None


def read_error_file(path: Path) -> LoggedError | None:
    """The error in one of torch's error files; None when there is none."""
    return parse_error_report(untrusted.read_object(str(path), MAX_REPORT_BYTES))


def _read_tail(path: Path) -> str:
    """The end of a log; "" when there is none."""
    return untrusted.read_tail(str(path), _TAIL_BYTES).decode(errors="replace")
