"""What is said of a job while some containers of a pod have ended and others of it run."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.objects import Object
from rowlock.workloads.frameworks import main_container_name
from rowlock.workloads.phase import (
    count_pods,
    has_main_ended,
    is_running,
    outlived_sentence,
    phase_and_message,
    phase_of,
)

RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-30T11:00:00Z"}}
AT = "2026-11-30T11:02:03Z"


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": AT, "reason": "Error" if code else "Completed"}}


def pod(policy: str = "Never", name: str = "j-master-0", phase: str = "Running", **states: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": AT},
        "spec": {"nodeName": "n", "restartPolicy": policy, "containers": [{"name": each} for each in states]},
        "status": {"phase": phase, "containerStatuses": [{"name": n, "state": state} for n, state in states.items()]},
    }


def job(kind: str = "PyTorchJob", replicas: int = 1) -> Object:
    role = {"PyTorchJob": "Master", "TFJob": "Chief"}[kind]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "j", "uid": "u", "creationTimestamp": AT},
        "spec": {"replicaSpecs": {role: {"replicas": replicas}}},
        "status": {},
    }


def test_the_main_container_is_the_one_that_the_operator_reads() -> None:
    both = pod(logger=RUNS, pytorch=RUNS)
    assert main_container_name(job(), both) == "pytorch"
    assert main_container_name(job("TFJob"), both) == "logger"  # it has no container `tensorflow`
    assert main_container_name({"apiVersion": "batch/v1", "kind": "Job"}, both) == "logger"
    assert main_container_name(job(), {"spec": {}}) == ""


def test_it_says_which_container_ended_and_which_keeps_the_pod_running() -> None:
    told = outlived_sentence(job(), [pod(logger=RUNS, pytorch=ended(0))])
    assert told.startswith(
        f"Container pytorch of pod j-master-0 ended with exit code 0 at {AT}, but logger still runs in that pod:"
        " the pod stays Running until that one ends."
    )
    assert "restartPolicy Always" in told
    assert phase_and_message(job(), [pod(logger=RUNS, pytorch=ended(0))], None) == ("Running", told)


def test_several_helpers_and_several_pods_are_counted() -> None:
    pods = [pod(name=f"j-{n}", pytorch=ended(0), logger=RUNS, metrics=RUNS) for n in range(3)]
    told = outlived_sentence(job(), pods)
    assert (
        "logger and metrics still run in that pod (as in 2 more of its pods): the pod stays Running until those end."
        in told
    )


@pytest.mark.parametrize(
    "quiet",
    [
        pod(pytorch=RUNS, logger=RUNS),
        pod(pytorch=RUNS, logger=ended(0)),
        pod(pytorch=ended(0)),
        pod(pytorch=ended(0), logger=ended(0), phase="Succeeded"),
        pod("OnFailure", pytorch=ended(1), logger=RUNS),  # its node starts it again
        pod("Always", pytorch=ended(0), logger=RUNS),
        pod(pytorch={"waiting": {"reason": "ContainerCreating"}}, logger=RUNS),
        {**pod(pytorch=ended(0), logger=RUNS), "metadata": {"name": "j", "deletionTimestamp": AT}},
    ],
)
def test_nothing_is_said_where_no_main_container_is_outlived(quiet: Object) -> None:
    assert outlived_sentence(job(), [quiet]) == ""


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Never", {"pytorch": ended(0), "logger": RUNS}, "Running"),
        ("OnFailure", {"pytorch": ended(0), "logger": RUNS}, "Running"),
        ("Never", {"pytorch": RUNS, "logger": ended(0)}, "Running"),
        ("Never", {"pytorch": ended(1), "logger": RUNS}, "Degraded"),
        ("Never", {"pytorch": RUNS, "logger": ended(1)}, "Degraded"),
        ("OnFailure", {"pytorch": ended(1), "logger": RUNS}, "Initializing"),
        ("Never", {"pytorch": ended(0), "logger": {"waiting": {"reason": "ContainerCreating"}}}, "Initializing"),
    ],
)
def test_a_pod_runs_while_a_container_of_it_does(policy: str, states: dict[str, Any], expected: str) -> None:
    its_pod = pod(policy, **states)
    assert phase_of(job(), [its_pod], None) == expected
    assert not is_running(its_pod)  # Kubernetes calls such a pod not ready
    assert count_pods([its_pod]).running == (expected != "Initializing")


@pytest.mark.parametrize(
    ("its_pod", "expected"),
    [
        (pod(pytorch=ended(0), phase="Succeeded"), True),
        (pod(logger=RUNS, pytorch=ended(0)), True),
        (pod(logger=RUNS, pytorch=ended(1)), False),
        (pod(logger=ended(0), pytorch=RUNS), False),
        (pod(pytorch=RUNS), False),
    ],
)
def test_a_rank_has_ended_with_its_main_container(its_pod: Object, expected: bool) -> None:
    assert has_main_ended(job(), its_pod) is expected
