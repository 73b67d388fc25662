"""How long workloads wait and run."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import objects
from rowlock.workloads.figures.times import read_milestones


def at(second: int) -> str:
    return f"2026-01-02T03:04:{second:02}Z"


def job(suspended: bool = False, completed: int = 0, **conditions: tuple[str, int]) -> objects.Object:
    said = [
        {"type": kind, "status": status, "lastTransitionTime": at(time)} for kind, (status, time) in conditions.items()
    ]
    status: dict[str, Any] = {"conditions": said, **({"completionTime": at(completed)} if completed else {})}
    return {"metadata": {"creationTimestamp": at(0)}, "spec": {"runPolicy": {"suspend": suspended}}, "status": status}


@pytest.mark.parametrize(
    ("a_job", "waited", "ran"),
    [
        (job(), 50, 0),
        (job(Running=("True", 10)), 10, 40),
        (job(Running=("False", 10), Succeeded=("True", 30), completed=30), 10, 20),
        (job(Running=("False", 10), Failed=("True", 25)), 10, 15),
        (job(Failed=("True", 25)), 25, 0),
        (job(suspended=True, Running=("False", 10)), None, None),
        (job(suspended=True, Running=("False", 10), Succeeded=("True", 30), completed=30), 10, 20),
        ({"metadata": {}, "status": {"completionTime": "soon"}}, 0, 0),
    ],
)
def test_waiting_and_running(a_job: objects.Object, waited: int | None, ran: int | None) -> None:
    now = objects.seconds(at(50))
    milestones = read_milestones(a_job)
    assert (milestones.waiting_seconds(now), milestones.running_seconds(now)) == (waited, ran)
