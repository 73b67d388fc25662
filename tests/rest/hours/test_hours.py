"""`GET /api/v1/hours` and `rowlock usage`: the same figures, of what runs and of what is gone."""

from __future__ import annotations

import contextlib
import csv
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.rest.conftest import World
from tests.rest.run_history.test_past_runs import give_pod, remove, submit

from rowlock import kinds
from rowlock.cli.usage import hours as command
from rowlock.rest.hours import routes
from rowlock.rest.run_history import past_workloads

GPUS = {"gpuDevicesRequest": 1}


def ask(world: World, **query: Any) -> Any:
    answer = world.client.get("/api/v1/hours", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_run_is_counted_while_it_is_there_and_when_it_is_gone(world: World) -> None:
    identity, job = submit(world)
    give_pod(world, job)
    there = ask(world, by="job")
    assert [(row["workloadName"], row["projectName"], row["workloadId"]) for row in there["rows"]] == [
        (job["metadata"]["name"], "team-a", identity)
    ]
    assert there["total"]["runs"] == 1 and there["rowsInAll"] == 1
    remove(world, identity, job, f"{job['metadata']['name']}-worker-0")
    gone = ask(world, by="job")
    assert [row["workloadId"] for row in gone["rows"]] == [identity]
    assert ask(world, by="user")["rows"][0]["userName"] == "ana"


def test_projects_are_told_apart(world: World) -> None:
    submit(world)
    world.project("team-b")
    assert [row["projectName"] for row in ask(world)["rows"]] == ["team-a"]
    assert ask(world, project="team-b")["rows"] == []
    assert len(ask(world, project="team-a")["rows"]) == 1
    world.do(lambda: world.store.delete(kinds.NAMESPACE, "", "runai-team-b"))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"by": "projekt"}, "by must be project, user or job, but is 'projekt'. Did you mean \"project\"?"),
        ({"since": "7d"}, "since must be a number of seconds, but is '7d'."),
        ({"since": "-1"}, "since must be greater than 0 seconds, but is -1."),
        ({"limit": "0"}, "limit must be between 1 and 10000, but is 0."),
        ({"sinse": "1"}, "there is no query parameter 'sinse'. Did you mean \"since\"?"),
    ],
)
def test_bad_questions_are_refused(world: World, query: dict[str, str], sentence: str) -> None:
    answer = world.client.get("/api/v1/hours", params=query)
    assert answer.status_code == 400 and sentence in answer.text.replace('\\"', '"'), answer.text


def test_an_unknown_project_is_not_there(world: World) -> None:
    assert world.client.get("/api/v1/hours?project=nosuch").status_code == 404


def test_any_span_of_time_is_one(world: World) -> None:
    submit(world)
    assert ask(world, since="1e300")["since"] == "1970-01-01T00:00:00Z"


def row(**changes: Any) -> dict[str, Any]:
    zero = {
        "gpuHoursHeld": 2.5,
        "gpuHoursUsed": 12.34,
        "gpuHoursIdle": None,
        "gpuHoursWasted": 0.0,
        "gpuHoursNotMeasured": 0.5,
    }
    names = {"projectName": "vision", "userName": "ana", "workloadName": "train", "workloadId": "0123456789"}
    return {**names, "runs": 3, "failedRuns": 1, **zero, "hoursWaited": 0.001, "gpusSimulated": False, **changes}


def answer(by: str, *rows: dict[str, Any], **total: Any) -> Any:
    told = {"by": by, "rows": list(rows), "total": row(**total), "rowsInAll": len(rows), "cut": "", "problem": ""}
    return told | {"since": "2026-01-01T00:00:00Z", "until": "2026-01-08T00:00:00Z"}


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    command._print_table(answer("job", row(), row(userName="", gpuHoursHeld=0.001)), "7d")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "JOB",
        "ID",
        "PROJECT",
        "USER",
        "RUNS",
        "FAILED",
        "HELD",
        "USED",
        "IDLE",
        "WASTED",
        "WAITED",
    ]
    assert lines[1].split() == ["train", "01234567", "vision", "ana", "3", "1", "2.50", "12.3", "-", "0", "3s"]
    assert lines[2].split()[3:7] == ["-", "3", "1", "<0.01"] and lines[3].startswith("all ")
    assert "0.50 were not measured" in lines[-1]
    command._print_table(answer("user", row(gpusSimulated=True), gpusSimulated=True), "7d")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "USER" and len([one for one in lines if one.startswith("ana")]) == 1
    assert "GPUs are simulated" in lines[-1] and not any(one.startswith("all") for one in lines)


def test_a_spreadsheet_computes_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    command._print_csv(answer("user", row(userName="=cmd()", workloadName="a,b\x1b[2J")))
    header, *lines = csv.reader(capsys.readouterr().out.splitlines())
    found = dict(zip(header, lines[0], strict=True))
    assert header == list(row()) and found["userName"] == "'=cmd()" and found["workloadName"] == "a,b^[[2J"
    assert (
        found["gpuHoursIdle"] == "" and found["gpusSimulated"] == "false" and json.loads(found["gpuHoursUsed"]) == 12.34
    )


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [(routes, "read_hours", "/api/v1/hours"), (past_workloads, "_read_rows", "/api/v1/workloads?deleted=true")],
)
def test_a_user_has_one_question_at_a_time_that_reads_many_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str
) -> None:
    """Each takes a thread for seconds, of which the server has few: with ten questions at once all others waited."""
    submit(world)
    ask(world)  # the archive begins its file with the first run
    both, have_met = threading.Barrier(2), list[bool]()

    def read(*_: Any) -> list[Any]:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
            have_met.append(True)
        return []

    monkeypatch.setattr(module, name, read)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(world.client.get, [path] * 3))
    assert [answer.status_code for answer in answers] == [200] * 3
    assert not have_met and both.broken
