"""Parts of a card for the pods of Jobs, JobSets and TrainJobs, asked for in the annotations of their templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

SPACE = "runai-default"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
PATHS = {
    "Job": f"/apis/batch/v1/namespaces/{SPACE}/jobs",
    "JobSet": f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets",
    "TrainJob": f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{SPACE}/trainjobs",
}
VERSIONS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1"}
SPEAK = "echo card $ROWLOCK_SIMULATED_GPU portion $GPU_PORTION; sleep 1000"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("fractions")) as made:
        made.up("--simulated-gpus", "1")
        yield made


def job_spec(marks: dict[str, str], pods: int) -> dict[str, Any]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", SPEAK]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    template = {"metadata": {"annotations": marks}, "spec": pod}
    return {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "template": template}


def spec_of(kind: str, marks: dict[str, str], pods: int) -> dict[str, Any]:
    if kind == "Job":
        return job_spec(marks, pods)
    if kind == "JobSet":
        return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job_spec(marks, pods)}}]}
    trainer = {"numNodes": pods, "image": "rowlock.dev/host", "command": ["sh", "-c", SPEAK]}
    job = {"name": "node", "template": {"spec": {"template": {"metadata": {"annotations": marks}}}}}
    patch = {
        "manager": "tests.rowlock.dev/me",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }
    return {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, "runtimePatches": [patch]}


def submit(machine: Cluster, kind: str, name: str, marks: dict[str, str], pods: int) -> None:
    made = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": {"name": name}, "spec": spec_of(kind, marks, pods)}
    machine.api("POST", PATHS[kind], made)


def held(machine: Cluster) -> str:
    queue = machine.api("GET", "/apis/scheduling.run.ai/v2/queues/default")
    return str(queue.get("status", {}).get("allocated", {}).get("nvidia.com/gpu") or "0")


@pytest.mark.parametrize("kind", list(PATHS))
def test_two_pods_share_a_card_and_two_more_wait(machine: Cluster, kind: str) -> None:
    first, second = f"shares-{kind.lower()}", f"waits-{kind.lower()}"
    submit(machine, kind, first, {"gpu-fraction": "0.4"}, 2)
    machine.run("rowlock", "wait", first, "--for", "running", "--timeout", "200s")
    pods = machine.api("GET", PODS)["items"]
    marks = [pod["metadata"]["annotations"] for pod in pods]
    assert [(m["gpu-fraction"], m["rowlock.dev/devices"], m["received-resource-type"]) for m in marks] == [
        ("0.4", "0", "Fraction")
    ] * 2
    machine.until(lambda: held(machine) == "800m", lambda: f"the queue holds {held(machine)}")
    said = machine.run("rowlock", "list")
    assert "0.8" in next(line for line in said.splitlines() if line.startswith(first)), said
    machine.until(
        lambda: machine.run("rowlock", "logs", first).count("card 0 portion 0.4") == 2,
        lambda: machine.run("rowlock", "logs", first),
    )
    submit(machine, kind, second, {"gpu-fraction": "0.2"}, 2)  # one would fit, both do not: the gang waits whole
    machine.until(
        lambda: "1 of 2 pods" in machine.run("rowlock", "explain", second),
        lambda: machine.run("rowlock", "explain", second),
    )
    machine.run("rowlock", "delete", first)
    machine.run("rowlock", "wait", second, "--for", "running", "--timeout", "200s")
    machine.run("rowlock", "delete", second)
    machine.until(lambda: not machine.api("GET", PODS)["items"], "the pods to go")


@pytest.mark.parametrize("kind", list(PATHS))
def test_memory_of_a_card(machine: Cluster, kind: str) -> None:
    name = f"memory-{kind.lower()}"
    submit(machine, kind, name, {"gpu-memory": "1024"}, 2)
    machine.run("rowlock", "wait", name, "--for", "running", "--timeout", "200s")
    marks = [pod["metadata"]["annotations"] for pod in machine.api("GET", PODS)["items"]]
    assert [(m["gpu-memory"], m["rowlock.dev/devices"]) for m in marks] == [("1024", "0")] * 2
    machine.run("rowlock", "delete", name)
    machine.until(lambda: not machine.api("GET", PODS)["items"], "the pods to go")
