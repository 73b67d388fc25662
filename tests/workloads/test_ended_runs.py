"""Which runs of a container have ended, and their numbers, by the status that a kubelet writes (Kubernetes 1.34.4)."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.objects import Object
from rowlock.workloads.pods import EndedRun, ended_runs


def ended(id: str, code: int = 7) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "containerID": f"containerd://{id}"}}


def status(count: int, id: str, state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": "c",
        "restartCount": count,
        "containerID": f"containerd://{id}",
        "state": state,
        "lastState": last or {},
    }


def pod(**statuses: Any) -> Object:
    return {"metadata": {"name": "p", "uid": "u"}, "status": statuses}


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (status(0, "a", {"running": {}}), []),
        (status(0, "a", ended("a")), [(0, True)]),
        (status(0, "a", BACK_OFF, ended("a")), [(0, True)]),
        (status(1, "b", {"running": {}}, ended("a")), [(0, False)]),
        (status(1, "b", ended("b"), ended("a")), [(0, False), (1, True)]),
        (status(1, "b", BACK_OFF, ended("b")), [(1, True)]),
        (status(4, "e", {"waiting": {"reason": "RunContainerError"}}, ended("d")), [(3, False)]),
        (
            {"name": "c", "restartCount": 2, "state": BACK_OFF, "lastState": {"terminated": {"exitCode": 1}}},
            [(2, True)],
        ),
        ({"name": "c", "restartCount": 2, "state": {}, "lastState": {"terminated": {"exitCode": 1}}}, [(1, False)]),
    ],
)
def test_a_run_that_waits_for_the_next_start_is_the_one_that_is_counted(
    told: dict[str, Any], expected: list[tuple[int, bool]]
) -> None:
    for field, is_init in (("containerStatuses", False), ("initContainerStatuses", True)):
        found = list(ended_runs(pod(**{field: [told]})))
        assert [(run.number, run.is_current) for run in found] == expected
        assert all(run.container == "c" and run.is_init is is_init for run in found)


def test_a_pod_without_statuses_has_no_runs() -> None:
    assert list(ended_runs(pod())) == list[EndedRun]()
