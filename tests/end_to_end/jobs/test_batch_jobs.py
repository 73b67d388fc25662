"""batch/v1 Jobs that run: made with the Kubernetes project's own Python client, and by kubectl's words."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

kubernetes: Any = import_module("kubernetes")  # it has no types
SPACE = "runai-default"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
PODS = f"/api/v1/namespaces/{SPACE}/pods"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("jobs")) as made:
        made.up("--simulated-gpus", "2")
        yield made


def batch_job(name: str, *command: str, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "rowlock.dev/host", "command": list(command)}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod |= spec.pop("pod", {})
    template = {"spec": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def conditions(cluster: Cluster, name: str) -> set[str]:
    status = cluster.api("GET", f"{JOBS}/{name}")["status"]
    return {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}


def ended(cluster: Cluster, name: str, how: str = "Complete") -> None:
    cluster.until(lambda: how in conditions(cluster, name), f"{name} to be {how}", 120)


def pods_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    found = cluster.api("GET", f"{PODS}?labelSelector=batch.kubernetes.io/job-name={name}")["items"]
    return sorted(found, key=lambda p: str(p["metadata"]["name"]))


def logs_of(cluster: Cluster, name: str) -> list[str]:
    with kubernetes.config.new_client_from_config(str(cluster.data / "kubeconfig")) as api:
        core = kubernetes.client.CoreV1Api(api)
        return [core.read_namespaced_pod_log(p["metadata"]["name"], SPACE) for p in pods_of(cluster, name)]


def test_the_official_client_runs_a_job_and_reads_its_log(machine: Cluster) -> None:
    with kubernetes.config.new_client_from_config(str(machine.data / "kubeconfig")) as api:
        batch, core = kubernetes.client.BatchV1Api(api), kubernetes.client.CoreV1Api(api)
        batch.create_namespaced_job(SPACE, batch_job("hello", "sh", "-c", "echo hello from a job"))
        watch = kubernetes.watch.Watch()
        selector = "metadata.name=hello"
        for event in watch.stream(batch.list_namespaced_job, SPACE, field_selector=selector, timeout_seconds=60):
            if event["object"].status.completion_time:
                watch.stop()
        job = batch.read_namespaced_job_status("hello", SPACE)
        assert (job.status.succeeded, job.status.active) == (1, None)
        (pod,) = core.list_namespaced_pod(SPACE, label_selector="job-name=hello").items
        assert core.read_namespaced_pod_log(pod.metadata.name, SPACE) == "hello from a job\n"
        batch.delete_namespaced_job("hello", SPACE, propagation_policy="Foreground")
    machine.until(lambda: not pods_of(machine, "hello"), "the pods to go with their Job")


def test_each_index_knows_its_number_and_its_hostname(machine: Cluster) -> None:
    script = "echo $JOB_COMPLETION_INDEX $(hostname)"
    machine.api("POST", JOBS, batch_job("numbers", "sh", "-c", script, completions=3, completionMode="Indexed"))
    ended(machine, "numbers")
    assert logs_of(machine, "numbers") == [f"{i} numbers-{i}\n" for i in range(3)]
    assert machine.api("GET", f"{JOBS}/numbers")["status"]["completedIndexes"] == "0-2"


def test_a_failed_job_says_why_and_keeps_nothing(machine: Cluster) -> None:
    job = batch_job("fails", "sh", "-c", "[ $JOB_COMPLETION_INDEX = 0 ] && exit 3; sleep 1000", gpus=1)
    job["spec"] |= {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0}
    machine.api("POST", JOBS, job)
    ended(machine, "fails", "Failed")
    machine.until(lambda: len(pods_of(machine, "fails")) == 1, "the other pod to be gone")
    machine.api("POST", JOBS, batch_job("next", "true", gpus=2))
    ended(machine, "next")


def test_the_pods_of_an_indexed_job_that_runs_whole_start_together_or_not_at_all(machine: Cluster) -> None:
    """Three pods of one GPU each on a machine with two: as a gang none starts; alone two do."""
    gang = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    machine.api("POST", JOBS, batch_job("gang", "sleep", "1000", gpus=1, **gang))

    def verdicts() -> list[str]:
        found = [c for p in pods_of(machine, "gang") for c in p["status"].get("conditions", ())]
        return [c["message"] for c in found if c["type"] == "PodScheduled" and c["status"] == "False"]

    machine.until(lambda: len(verdicts()) == 3, "all three to be told that they wait")
    assert not any(p["spec"].get("nodeName") for p in pods_of(machine, "gang"))
    machine.api("DELETE", f"{JOBS}/gang?propagationPolicy=Background")
    machine.api("POST", JOBS, batch_job("alone", "sleep", "1000", gpus=1, completions=3, parallelism=3))
    machine.until(lambda: sum(bool(p["spec"].get("nodeName")) for p in pods_of(machine, "alone")) == 2, "two to run")
    machine.api("DELETE", f"{JOBS}/alone?propagationPolicy=Background")
    machine.until(lambda: not pods_of(machine, "alone"), "the pods to go")


def test_rowlocks_commands_show_a_job_as_a_workload_with_ranks(machine: Cluster) -> None:
    script = "echo number $JOB_COMPLETION_INDEX; sleep 1000"
    gang = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    machine.api("POST", JOBS, batch_job("shown", "sh", "-c", script, gpus=1, **gang))
    machine.run("rowlock", "wait", "shown", "--for", "running", "--timeout", "200s")
    machine.api("POST", JOBS, batch_job("waits", "sleep", "1000", gpus=1, **gang))
    machine.until(lambda: "held by shown" in machine.run("rowlock", "why", "waits"), "the reason to be told")
    listed = {row["name"]: row["phase"] for row in machine.json("rowlock", "list", "--json")}
    assert listed["shown"] == "Running" and listed["waits"] == "Pending"
    machine.until(lambda: "number 1" in machine.run("rowlock", "logs", "shown"), "the program to speak")
    assert "[rank 1] number 1" in machine.run("rowlock", "logs", "shown")
    assert machine.run("rowlock", "exec", "shown", "--rank", "1", "--", "printenv", "JOB_COMPLETION_INDEX") == "1\n"
    machine.run("rowlock", "suspend", "shown")
    machine.until(lambda: "Suspended" in conditions(machine, "shown"), "the Job to be suspended")
    machine.until(lambda: not pods_of(machine, "shown"), "the pods to go")
    ends = "was stopped (suspend: its job was suspended)"
    machine.until(lambda: machine.run("rowlock", "why", "shown").count(ends) == 2, "the ends of its pods to be told")
    machine.run("rowlock", "wait", "waits", "--for", "running", "--timeout", "200s")
    machine.run("rowlock", "delete", "waits")
    machine.run("rowlock", "resume", "shown")
    machine.run("rowlock", "wait", "shown", "--for", "running", "--timeout", "200s")
    machine.run("rowlock", "delete", "shown")
    machine.until(lambda: "waits" in machine.run("rowlock", "history"), "the history to know it")
    machine.until(lambda: not pods_of(machine, "shown"), "the pods to go")


def test_a_job_that_waits_after_a_failure_says_so(machine: Cluster) -> None:
    machine.api("POST", JOBS, batch_job("again", "sh", "-c", "exit 3"))
    sentence = "ended with exit code 3. The next pod is made after a delay of 10 s that doubles with each failure (1 pod has failed, 6 may)."
    machine.until(lambda: sentence in machine.run("rowlock", "list"), lambda: machine.run("rowlock", "list"))
    machine.run("rowlock", "delete", "again")


def test_a_job_that_another_object_has_made_is_not_shown_beside_it(machine: Cluster) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Set", "name": "set", "uid": "u-1", "controller": True}
    job = batch_job("part", "sleep", "1000")
    job["metadata"]["ownerReferences"] = [owner]
    machine.api("POST", JOBS, job)
    machine.until(lambda: len(pods_of(machine, "part")) == 1, "its pod")
    assert "part" not in {row["name"] for row in machine.json("rowlock", "list", "--json")}
    machine.api("DELETE", f"{JOBS}/part?propagationPolicy=Background")


def test_a_pod_that_is_deleted_before_it_starts_is_replaced_also_where_the_job_waits_for_its_end(
    machine: Cluster,
) -> None:
    job = batch_job("waiting", "true", podReplacementPolicy="Failed")
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "nobody.invalid/nothing:1"
    machine.api("POST", JOBS, job)

    def pods() -> list[str]:
        found = machine.api("GET", f"/api/v1/namespaces/{SPACE}/pods?labelSelector=job-name=waiting")["items"]
        return [pod["metadata"]["name"] for pod in found if pod["spec"].get("nodeName")]

    machine.until(lambda: len(pods()) == 1, "the pod to be placed")
    (first,) = pods()
    machine.api("DELETE", f"/api/v1/namespaces/{SPACE}/pods/{first}")
    machine.until(lambda: pods() and first not in pods(), lambda: f"another pod: {pods()}", 90)
    machine.api("DELETE", f"{JOBS}/waiting?propagationPolicy=Background")
    machine.until(lambda: not pods(), "the pods to go")
