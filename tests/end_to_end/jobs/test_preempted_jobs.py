"""Jobs, JobSets and TrainJobs that yield to one of a higher priority in their queue: as a whole, told with the reason, and not as a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.jobs.test_trainjob_gangs import FOR_EVER, SETS, TRAINJOBS, replicated, train_job

JOBS = "/apis/batch/v1/namespaces/runai-{}/jobs"
PODS = "/api/v1/namespaces/runai-{}/pods"
KINDS = {"Job": JOBS, "JobSet": SETS, "TrainJob": TRAINJOBS}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("preempted")) as made:
        made.up("--nodes", "2", "--simulated-gpus", "1")
        made.run("rowlock", "project", "create", "a", "--gpus", "2")
        yield made


def of_kind(kind: str, name: str, pods: int, script: str, priority: str = "") -> dict[str, Any]:
    """A gang of pods with one GPU each. The priority stands where users of the kind write it: in the pod template, or in a label of a
    TrainJob, which has no field for it."""
    if kind == "TrainJob":
        made = train_job(name, pods, script)
        return {**made, "metadata": {"name": name, "labels": {"priorityClassName": priority} if priority else {}}}
    job = replicated("w", pods, script)
    pod_spec = job["template"]["spec"]["template"]["spec"]
    pod_spec |= {"priorityClassName": priority} if priority else {}
    if kind == "Job":
        spec = {**job["template"]["spec"], "completionMode": "Indexed", "backoffLimit": 0}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
    return {**head, "spec": {"replicatedJobs": [job]}}


class Told:
    """One workload, by what people are told of it."""

    def __init__(self, machine: Cluster, kind: str, name: str) -> None:
        self.machine, self.kind, self.name = machine, kind, name

    def row(self) -> dict[str, Any]:
        rows = self.machine.json("rowlock", "list", "-p", "a", "--json")
        return dict(next((row for row in rows if row["name"] == self.name), {}))

    def phase(self) -> str:
        return str(self.row().get("phase", ""))

    def why(self) -> str:
        return self.machine.run("rowlock", "why", self.name, "-p", "a", code=None)

    def pods(self) -> list[dict[str, Any]]:
        pods = self.machine.api("GET", PODS.format("a"))["items"]
        return [p for p in pods if p["metadata"]["name"].startswith(f"{self.name}-")]

    def nodes(self) -> list[str]:
        return [p["spec"]["nodeName"] for p in self.pods() if "nodeName" in p["spec"]]

    def until_phase(self, phase: str) -> None:
        self.machine.until(lambda: self.phase() == phase, self.why, 180)

    def evictions(self) -> list[str]:
        events = self.machine.api("GET", "/api/v1/namespaces/runai-a/events")["items"]
        return [
            event["message"]
            for event in events
            if event["reason"] == "Evict"
            and (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (self.kind, self.name)
        ]

    def failed(self) -> int:
        """Failures that the Jobs of the workload have counted."""
        jobs = self.machine.api("GET", JOBS.format("a"))["items"]
        return sum(job["status"].get("failed", 0) for job in jobs if job["metadata"]["name"].startswith(self.name))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_yields_as_a_whole_and_goes_on(machine: Cluster, kind: str, tmp_path: Path) -> None:
    """One pod of a higher priority takes the room of one; a rank of a gang is nothing without the other."""
    stop = tmp_path / "stop"
    low, high = Told(machine, kind, "low"), Told(machine, kind, "high")
    machine.api("POST", KINDS[kind].format("a"), of_kind(kind, "low", 2, FOR_EVER))
    low.until_phase("Running")
    first = {pod["metadata"]["uid"] for pod in low.pods()}
    script = f"while [ ! -e {stop} ]; do sleep 0.05; done"
    machine.api("POST", KINDS[kind].format("a"), of_kind(kind, "high", 1, script, "build"))
    high.until_phase("Running")
    assert (high.row()["priorityClassName"], high.row()["preemptible"]) == ("build", False)
    machine.until(lambda: len(low.pods()) == 2 and not low.nodes(), low.why, 120)
    assert not first & {pod["metadata"]["uid"] for pod in low.pods()}
    machine.until(lambda: "was evicted" in low.why() and "preempted by" in low.why(), low.why, 60)
    assert low.phase() == "Pending" and low.failed() == 0
    assert low.evictions(), "kubectl describe shows it at the object that the user has made"
    machine.until(lambda: str(low.row().get("phaseMessage", "")).startswith("preempted;"), lambda: str(low.row()), 60)
    stop.touch()
    high.until_phase("Completed")
    low.until_phase("Running")
    assert low.failed() == 0
    machine.run("rowlock", "delete", "low", "high", "-p", "a", "--yes")
    machine.until(lambda: not low.pods() and not high.pods(), "the pods to go", 120)
    shown = machine.run("rowlock", "show", "low", "-p", "a")
    assert "preempted" in shown, shown


@pytest.mark.timeout(600)
def test_pods_of_a_job_that_is_no_gang_yield_one_by_one(machine: Cluster, tmp_path: Path) -> None:
    job = of_kind("Job", "loose", 2, FOR_EVER)
    del job["spec"]["completionMode"]
    loose, urgent = Told(machine, "Job", "loose"), Told(machine, "Job", "urgent")
    machine.api("POST", JOBS.format("a"), job)
    machine.until(lambda: len(loose.nodes()) == 2, loose.why, 120)
    machine.api("POST", JOBS.format("a"), of_kind("Job", "urgent", 1, FOR_EVER, "build"))
    urgent.until_phase("Running")
    machine.until(lambda: len(loose.pods()) == 2 and len(loose.nodes()) == 1, loose.why, 120)
    assert loose.failed() == 0
    assert loose.evictions()
    machine.run("rowlock", "delete", "loose", "urgent", "-p", "a", "--yes")
    machine.until(lambda: not loose.pods() and not urgent.pods(), "the pods to go", 120)
