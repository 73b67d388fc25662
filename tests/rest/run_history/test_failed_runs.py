"""Failed runs that a pod's status has no more are kept: the first and the last ones, in the record of the workload."""

from __future__ import annotations

import json

from rowlock.objects import Object
from rowlock.rest.run_history.failed_runs import FIRST, LAST, FailedRuns, failed_runs_of, note_failed_runs
from rowlock.workloads.pods import EndedRun


def pod(number: int, code: int = 7, field: str = "containerStatuses", uid: str = "u") -> Object:
    terminated = {"exitCode": code, "finishedAt": f"2026-01-02T03:04:{number:02}Z"}
    status = {"name": "c", "restartCount": number, "state": {"terminated": terminated}}
    return {"metadata": {"name": "p", "uid": uid}, "status": {field: [status]}}


def numbers(noted: FailedRuns) -> list[int]:
    return [run.number for run in failed_runs_of({"failedRuns": json.loads(json.dumps(noted))}).get("u", ())]


def test_each_failure_is_noted_once_and_successes_are_not() -> None:
    noted: FailedRuns = {}
    assert note_failed_runs(noted, pod(0)) and not note_failed_runs(noted, pod(0))
    assert not note_failed_runs(noted, pod(1, code=0)) and note_failed_runs(noted, pod(2))
    assert numbers(noted) == [0, 2]


def test_the_first_and_the_last_ones_are_kept() -> None:
    noted: FailedRuns = {}
    for number in range(40):
        note_failed_runs(noted, pod(number))
    assert numbers(noted) == [*range(FIRST), *range(40 - LAST, 40)]


def test_they_come_back_as_runs_whose_log_is_not_the_current_one() -> None:
    noted: FailedRuns = {}
    note_failed_runs(noted, pod(0, field="initContainerStatuses"))
    (run,) = failed_runs_of({"failedRuns": noted})["u"]
    assert run == EndedRun("c", 0, run.terminated, is_current=False, is_init=True)
    assert run.terminated["exitCode"] == 7 and failed_runs_of({}) == {}
