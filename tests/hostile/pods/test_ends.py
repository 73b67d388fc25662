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
from rowlock.objects import Object, end_time

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


@pytest.mark.timeout(300)
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
