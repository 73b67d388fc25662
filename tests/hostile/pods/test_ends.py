"""What ended while the server was down ended then, not when somebody looked."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

from rowlock import objects
from rowlock.archive.records import PhaseStep, RunRecord
from rowlock.objects import Object, end_time
from rowlock.rest.run_history.run_notes import RunNotes

NOW = 1_000_000.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        yield made


def ended_pod(*ends: float | str, phase: str = "Succeeded") -> Object:
    texts = [end if isinstance(end, str) else objects.timestamp(end) for end in ends]
    return {
        "status": {"phase": phase, "containerStatuses": [{"state": {"terminated": {"finishedAt": t}}} for t in texts]}
    }


def job(created: float = NOW - 100, **status: Any) -> Object:
    return {"metadata": {"creationTimestamp": objects.timestamp(created)}, "status": status}


@pytest.mark.parametrize(
    ("made", "pods", "ended"),
    [
        (job(), [ended_pod(NOW - 40, NOW - 30), ended_pod(NOW - 50, phase="Failed")], NOW - 30),
        (job(), [ended_pod(NOW - 40), {"status": {"phase": "Running"}}], NOW),
        (job(), [ended_pod(NOW - 1)], NOW),
        (job(), [ended_pod(NOW + 1000)], NOW),
        (job(), [ended_pod(NOW - 1000)], NOW),
        (job(), [ended_pod("yesterday")], NOW),
        (job(), [], NOW),
        (job(completionTime=objects.timestamp(NOW - 20)), [], NOW - 20),
        (job(completionTime="x", conditions=[{"type": "Failed", "status": "True"}]), [], NOW),
        (job(conditions=[{"type": "Failed", "status": "True", "lastTransitionTime": objects.timestamp(NOW - 9)}]), [], NOW - 9),
        (job(conditions=[{"type": "Failed", "status": "False", "lastTransitionTime": objects.timestamp(NOW - 9)}]), [], NOW),
    ],
)  # fmt: skip
def test_the_time_of_an_end_is_that_of_the_facts(made: Object, pods: list[Object], ended: float) -> None:
    assert end_time(made, pods, NOW) == ended


def started_pod(at: float | str, state: str = "running") -> Object:
    text = at if isinstance(at, str) else objects.timestamp(at)
    return {"status": {"phase": "Running", "containerStatuses": [{"state": {state: {"startedAt": text}}}]}}


@pytest.mark.parametrize(
    ("pods", "last_phase", "began"),
    [
        ([started_pod(NOW - 40), started_pod(NOW - 30, "terminated")], NOW - 60, NOW - 30),
        ([started_pod(NOW - 40)], NOW - 35, NOW - 35),
        ([started_pod(NOW - 1)], NOW - 60, NOW),
        ([started_pod(NOW + 1000)], NOW - 60, NOW),
        ([started_pod("yesterday")], NOW - 60, NOW),
        ([{"status": {"phase": "Pending"}}], NOW - 60, NOW),
        ([], NOW - 60, NOW),
    ],
)
def test_a_start_that_is_seen_late_does_not_delay_the_end(pods: list[Object], last_phase: float, began: float) -> None:
    """The server was killed before it had written that the job runs."""
    notes = RunNotes(RunRecord("uid", "w", "away", "own", "nu", "p", "PyTorchJob", NOW - 100))
    notes.phases.append(PhaseStep(last_phase, "Pending", ""))
    assert notes.phase_time("Running", job(), pods, NOW) == began
    assert notes.phase_time("Pending", job(), pods, NOW) == NOW
    notes.note_phase(began, "Running", "")
    assert notes.phase_time("Completed", job(), [ended_pod(NOW - 20)], NOW) == max(began, NOW - 20)


def test_a_job_that_ended_while_the_server_was_down(cluster: Cluster) -> None:
    cluster.up()
    gate = cluster.data.parent / "gate"
    program = f"until test -e {gate}; do sleep 0.05; done"
    cluster.run("rowlock", "run", "--detach", "--name", "away", "--", "sh", "-c", program)

    def status() -> Any:
        return cluster.api("GET", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs/away")["status"]

    def is_true(wanted: str) -> bool:
        return any(c["type"] == wanted and c["status"] == "True" for c in status().get("conditions", ()))

    cluster.until(lambda: is_true("Running"), "the job to run")
    os.kill(cluster.pid, signal.SIGKILL)
    gate.touch()
    cluster.until(lambda: list(cluster.data.glob("pods/*/*/exit.*")), "the program to end")
    ended = time.time()
    cluster.until(lambda: time.time() > ended + 6, "a while to pass")
    cluster.up()
    cluster.until(lambda: is_true("Succeeded"), "the job to have succeeded")
    assert objects.seconds(status()["completionTime"]) <= ended + 2
    cluster.until(lambda: cluster.json("rowlock", "history", "--json")[0].get("finishedAt"), "the record of the run")
    (run,) = cluster.json("rowlock", "history", "--json")
    assert objects.seconds(run["finishedAt"]) <= ended + 2, run
