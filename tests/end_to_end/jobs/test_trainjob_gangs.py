"""TrainJobs and JobSets as gangs, on a cluster of two GPUs: placed whole or not at all, suspended, reclaimed, started in steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/runai-{}/trainjobs"
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/runai-{}/jobsets"
PODS = "/api/v1/namespaces/runai-{}/pods?labelSelector=jobset.sigs.k8s.io/jobset-name={}"
GPU = {"nvidia.com/gpu": "1"}
FOR_EVER = "while :; do sleep 1; done"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("gangs")) as made:
        made.up("--nodes", "2", "--simulated-gpus", "1")
        for project in ("a", "b"):
            made.run("rowlock", "project", "create", project, "--gpus", "1")
        yield made


def train_job(name: str, nodes: int, script: str = FOR_EVER) -> dict[str, Any]:
    """One GPU a node."""
    trainer = {"numNodes": nodes, "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    trainer["resourcesPerNode"] = {"requests": GPU, "limits": GPU}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


def replicated(name: str, pods: int, script: str, **more: Any) -> dict[str, Any]:
    """One GPU a pod."""
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [{**container, "resources": {"limits": GPU}}]}
    return {
        "name": name,
        "template": {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod}}},
        **more,
    }


class Watched:
    """One TrainJob or JobSet, by its pods and its phase."""

    def __init__(self, machine: Cluster, project: str, name: str) -> None:
        self.machine, self.project, self.name = machine, project, name

    def pods(self) -> list[dict[str, Any]]:
        found = self.machine.api("GET", PODS.format(self.project, self.name))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def bound(self) -> int:
        """How many have a node and have not ended."""
        ended = ("Succeeded", "Failed")
        return sum("nodeName" in p["spec"] and p["status"].get("phase") not in ended for p in self.pods())

    def running(self) -> int:
        return sum(p["status"].get("phase") == "Running" for p in self.pods())

    def phase(self) -> str:
        rows = self.machine.json("rowlock", "list", "-p", self.project, "--json")
        return str(next((row["phase"] for row in rows if row["name"] == self.name), ""))

    def runs_whole(self, pods: int) -> None:
        self.machine.until(lambda: self.running() == pods, self.told, 180)

    def waits_whole(self, pods: int) -> None:
        """All its pods are there, and none has a node."""
        self.machine.until(lambda: len(self.pods()) == pods and not self.bound(), self.told, 180)

    def told(self) -> str:
        return self.machine.run("rowlock", "why", self.name, "-p", self.project, code=None)

    def run(self, verb: str) -> None:
        self.machine.run("rowlock", verb, self.name, "-p", self.project, *(["--yes"] if verb == "delete" else []))

    def gone(self) -> None:
        path = PODS.format(self.project, self.name)
        self.machine.until(lambda: not self.machine.api("GET", path)["items"], f"the pods of {self.name} to go", 120)


@pytest.mark.timeout(600)
def test_a_trainjob_waits_whole_and_its_room_is_free_while_it_is_suspended(machine: Cluster) -> None:
    first, second = (Watched(machine, "a", name) for name in ("first", "second"))
    machine.api("POST", TRAINJOBS.format("a"), train_job("first", 2))
    first.runs_whole(2)
    machine.api("POST", TRAINJOBS.format("a"), train_job("second", 2))
    second.waits_whole(2)
    machine.until(lambda: "GPU" in second.told(), second.told)
    first.run("suspend")
    second.runs_whole(2)
    assert not first.pods()
    first.run("resume")
    first.waits_whole(2)
    assert second.running() == 2
    second.run("delete")
    first.runs_whole(2)
    first.run("delete")
    first.gone()
    second.gone()


@pytest.mark.timeout(600)
def test_a_trainjob_beyond_its_quota_yields_and_goes_on_by_itself(machine: Cluster, tmp_path: Path) -> None:
    long, short = Watched(machine, "a", "long"), Watched(machine, "b", "short")
    machine.api("POST", TRAINJOBS.format("a"), train_job("long", 2))
    long.runs_whole(2)
    stop = tmp_path / "stop"
    machine.api("POST", TRAINJOBS.format("b"), train_job("short", 1, f"while [ ! -e {stop} ]; do sleep 0.05; done"))
    short.runs_whole(1)
    long.waits_whole(2)
    machine.until(lambda: long.phase() == "Pending", long.told)
    stop.touch()
    machine.until(lambda: short.phase() == "Completed", short.told, 120)
    long.runs_whole(2)
    machine.until(lambda: long.phase() == "Running", long.told)
    long.run("delete")
    short.run("delete")
    long.gone()


@pytest.mark.timeout(600)
def test_a_set_that_is_larger_than_the_cluster_runs_in_steps(machine: Cluster) -> None:
    """Three pods of one GPU each, on two: those that depend on others are a gang of their own."""
    jobs = [
        replicated("fetch", 1, "echo fetched"),
        replicated("train", 2, "echo trained", dependsOn=[{"name": "fetch", "status": "Complete"}]),
    ]
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "steps"}}
    machine.api("POST", SETS.format("a"), {**made, "spec": {"replicatedJobs": jobs}})
    steps = Watched(machine, "a", "steps")
    machine.until(lambda: steps.phase() == "Completed", steps.told, 180)
    log = machine.run("rowlock", "logs", "steps", "-p", "a")
    assert sorted(line.partition("] ")[2] for line in log.splitlines()) == ["fetched", "trained", "trained"]
    steps.run("delete")


@pytest.mark.timeout(600)
def test_a_set_that_never_fits_says_so(machine: Cluster) -> None:
    machine.api("POST", TRAINJOBS.format("a"), train_job("huge", 3))
    huge = Watched(machine, "a", "huge")
    huge.waits_whole(3)
    machine.until(lambda: "3" in huge.told() and "GPU" in huge.told(), huge.told)
    huge.run("delete")
    huge.gone()
