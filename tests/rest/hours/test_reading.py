"""Hours of runs as the archive has them: computed from its rows alone, by project, user and job."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rowlock import objects
from rowlock.archive import database
from rowlock.archive.records import PodRecord, RunRecord
from rowlock.rest.hours.reading import Nodes, RunHours, read_hours, read_places
from rowlock.rest.hours.routes import _KEYS, _row, _sum_up
from rowlock.workloads.figures.hours import Window
from rowlock.workloads.figures.usage_series import UsageSample, UsageSeries

WEEK = Window(10_000.0, 20_000.0)
NODES = Nodes({"": 81_559, "n": 81_559}, frozenset({"simulated"}))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(database.open_database(tmp_path / "archive.db", writes=True)) as opened:
        yield opened


class Archived:
    """Writes runs as the recorder does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def run(
        self, name: str, *, project: str = "vision", user: str = "ana", phase: str = "Completed", **more: Any
    ) -> str:
        annotations = {"rowlock.dev/created-by": user, **more.pop("annotations", {})}
        body = {
            "job": {"kind": "PyTorchJob", "metadata": {"name": name, "annotations": annotations}},
            "phases": more.pop("phases", [[11_000.0, "Pending", ""], [11_100.0, "Running", ""]]),
            "lives": more.pop("lives", {}),
        }
        record = RunRecord(
            name, f"id-{name}", name, f"runai-{project}", f"uid-{project}", project, "PyTorchJob", more.pop("created", 11_000.0),
            phase=phase, **more,
        )  # fmt: skip
        database.write_all(self.connection, [database.put_run(record, body)])
        return name

    def pod(
        self,
        run: str,
        *,
        begin: float,
        end: float | None,
        gpus: str = "1",
        number: int = 0,
        node: str = "n",
        annotations: dict[str, str] | None = None,
    ) -> None:
        uid = f"{run}-{number}"
        state = {"terminated": {"exitCode": 0, "finishedAt": objects.timestamp(end)}} if end else {"running": {}}
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": objects.timestamp(begin)}
        limits = {} if annotations else {"nvidia.com/gpu": gpus}
        body = {
            "metadata": {"name": uid, "uid": uid, "annotations": annotations or {}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {
                "phase": "Succeeded" if end else "Running", "conditions": [condition], "containerStatuses": [{"state": state}],
            },
        }  # fmt: skip
        database.write_all(self.connection, [database.put_pod(PodRecord(uid, run, uid, begin, None, body))])

    def usage(self, run: str, series: UsageSeries, number: int = 0) -> None:
        uid = f"{run}-{number}"
        body = {"pod": uid, **series.to_json()}
        database.write_all(self.connection, [database.put_samples(run, uid, series.start, body)])

    def hours(self, window: Window = WEEK, live: dict[str, UsageSeries] | None = None) -> dict[str, RunHours]:
        return {run.name: run for run in read_hours(self.connection, window, None, NODES, live or {})}


@pytest.fixture
def archived(connection: sqlite3.Connection) -> Archived:
    return Archived(connection)


def usage(begin: float, end: float, utilization: float, step: float = 100.0) -> UsageSeries:
    series, at = UsageSeries(begin), begin
    while at < end:
        at = min(at + step, end)
        series.add(at, UsageSample(cpu_cores=1.0, gpu_utilization=utilization))
    return series


def test_a_run_whole(archived: Archived) -> None:
    run = archived.run("train", finished=12_100.0)
    archived.pod(run, begin=11_100.0, end=12_100.0, gpus="8")
    archived.usage(run, usage(11_100.0, 12_100.0, 25.0))
    found = archived.hours()["train"]
    assert (found.project, found.user, found.id) == ("vision", "ana", "id-train")
    hours = found.hours
    assert (hours.runs, hours.failed_runs, hours.held, hours.measured, hours.used) == (1, 0, 8000.0, 8000.0, 2000.0)
    assert (hours.idle, hours.wasted, hours.waited, hours.is_simulated) == (0.0, 0.0, 100.0, False)


def test_only_the_part_within_the_window_counts(archived: Archived) -> None:
    run = archived.run("long", created=1000.0, finished=None, phase="Running", phases=[[1000.0, "Running", ""]])
    archived.pod(run, begin=1000.0, end=None)
    archived.usage(run, usage(1000.0, 20_000.0, 100.0))
    hours = archived.hours()["long"].hours
    assert hours.held == 10_000.0 and hours.used == pytest.approx(10_000.0, rel=0.02)


def test_what_was_over_before_the_window_is_not_there(archived: Archived) -> None:
    archived.run("old", created=100.0, finished=200.0, deleted=300.0, phases=[])
    kept = archived.run("kept", created=100.0, finished=200.0, phases=[[100.0, "Running", ""]])
    archived.pod(kept, begin=100.0, end=200.0)
    found = archived.hours()
    assert list(found) == ["kept"] and found["kept"].hours.runs == 0
    rows, total = _sum_up(list(found.values()), _KEYS["job"])
    assert rows == [] and total.runs == 0


def test_a_pod_that_outlives_its_job_still_holds(archived: Archived) -> None:
    """cleanPodPolicy None leaves parameter servers, which run for ever."""
    run = archived.run("ps", created=100.0, finished=200.0, phases=[])
    archived.pod(run, begin=100.0, end=None)
    hours = archived.hours()["ps"].hours
    assert (hours.held, hours.runs) == (10_000.0, 1)


def test_shares_count_as_shares(archived: Archived) -> None:
    run = archived.run("half", finished=12_000.0)
    archived.pod(run, begin=11_000.0, end=12_000.0, annotations={"gpu-fraction": "0.5"})
    archived.pod(run, begin=11_000.0, end=12_000.0, number=1, annotations={"gpu-memory": "8156"})
    assert archived.hours()["half"].hours.held == pytest.approx(500.0 + 100.0, rel=1e-3)


def test_what_nobody_can_read_holds_nothing(archived: Archived) -> None:
    run = archived.run("odd", finished=12_000.0)
    archived.pod(run, begin=11_000.0, end=12_000.0, gpus="many")
    assert archived.hours()["odd"].hours.held == 0.0


def test_failed_runs_waste_all_and_limits_are_no_failures(archived: Archived) -> None:
    because = {"rowlock.dev/ended-because": "It was stopped: it reached its --max-time of 2 h."}
    for name, notes in (("failed", {}), ("stopped", because)):
        run = archived.run(name, phase="Failed", finished=12_000.0, annotations=notes)
        archived.pod(run, begin=11_000.0, end=12_000.0)
    found = archived.hours()
    assert (found["failed"].hours.wasted, found["failed"].hours.failed_runs) == (1000.0, 1)
    assert (found["stopped"].hours.wasted, found["stopped"].hours.failed_runs) == (0.0, 0)


def test_simulated_gpus_are_said_and_idle_by_their_cpus(archived: Archived) -> None:
    run = archived.run("sim", finished=12_000.0)
    archived.pod(run, begin=11_000.0, end=12_000.0, node="simulated", gpus="2")
    series = UsageSeries(11_000.0)
    series.add(11_600.0, UsageSample(cpu_cores=1.0))
    series.add(12_000.0, UsageSample(cpu_cores=0.01))
    archived.usage(run, series)
    row = _row(("vision", "", "", ""), archived.hours()["sim"].hours)
    assert row["gpusSimulated"] and row["gpuHoursUsed"] is None
    assert (
        row["gpuHoursIdle"] == pytest.approx(800 / 3600, abs=1e-6) and row["gpuHoursNotMeasured"] == row["gpuHoursHeld"]
    )


def test_a_running_pods_usage_is_newer_than_the_archives(archived: Archived) -> None:
    run = archived.run("now", phase="Running", finished=None)
    archived.pod(run, begin=11_000.0, end=None)
    archived.usage(run, usage(11_000.0, 12_000.0, 50.0))
    live = {"now-0": usage(11_000.0, 20_000.0, 50.0)}
    assert archived.hours()["now"].hours.used == 500.0
    assert archived.hours(live=live)["now"].hours.used == pytest.approx(4500.0), "the same series, longer by now"


def test_usage_of_several_servers_adds_up(archived: Archived) -> None:
    """A restarted server begins another series of a pod that goes on."""
    run = archived.run("two", finished=13_000.0)
    archived.pod(run, begin=11_000.0, end=13_000.0)
    archived.usage(run, usage(11_000.0, 12_000.0, 100.0))
    archived.usage(run, usage(12_200.0, 13_000.0, 100.0))
    hours = archived.hours()["two"].hours
    assert (hours.held, hours.measured, hours.used) == (2000.0, 1800.0, 1800.0), "nobody looked for 200 s"


def test_rows_are_sums_of_runs(archived: Archived) -> None:
    for number, (project, user) in enumerate([("a", "ana"), ("a", "bo"), ("b", "bo")]):
        run = archived.run(f"r{number}", project=project, user=user, finished=12_000.0)
        archived.pod(run, begin=11_000.0, end=12_000.0, gpus=str(number + 1))
    runs = list(archived.hours().values())
    for by, expected in (("project", [("a", 3000.0), ("b", 3000.0)]), ("user", [("bo", 5000.0), ("ana", 1000.0)])):
        rows, total = _sum_up(runs, _KEYS[by])
        assert [("".join(key), hours.held) for key, hours in rows] == expected
        assert total.held == 6000.0 and total.runs == 3
    rows, _ = _sum_up(runs, _KEYS["job"])
    assert next(key for key, _ in rows) == ("b", "bo", "r2", "id-r2")


def test_only_given_places_are_read(archived: Archived, connection: sqlite3.Connection) -> None:
    archived.run("mine", project="a", finished=12_000.0)
    archived.run("theirs", project="b", finished=12_000.0)
    assert sorted(read_places(connection, WEEK)) == [
        ("runai-a", "uid-a", "PyTorchJob"), ("runai-b", "uid-b", "PyTorchJob"),
    ]  # fmt: skip
    mine = [("runai-a", "uid-a", "PyTorchJob")]
    assert [run.name for run in read_hours(connection, WEEK, mine, NODES, {})] == ["mine"]
    for other in [("runai-a", "uid-b", "PyTorchJob"), ("runai-a", "uid-a", "TFJob")]:
        assert read_hours(connection, WEEK, [other], NODES, {}) == []
    assert read_hours(connection, WEEK, [], NODES, {}) == []
