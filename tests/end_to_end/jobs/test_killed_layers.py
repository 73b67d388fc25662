"""`kill -9` of the server while sets make Jobs and Jobs make pods: every layer goes on where it was, and nothing is made twice."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster

SPACE = "runai-default"
SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets"
TRAIN_JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{SPACE}/trainjobs"
JOBS = f"/apis/batch/v1/namespaces/{SPACE}/jobs"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
KILLS = 10
NAP = "sleep 0.5"
FAILS_ONCE = "sleep 0.3; [ -e {mark} ] || { touch {mark}; exit 3; }"


def replicated(name: str, script: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **more}


def job_set(name: str, *jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}}
    return {**head, "spec": {"replicatedJobs": list(jobs), **spec}}


def train_job(name: str, script: str) -> dict[str, Any]:
    trainer = {"numNodes": 2, "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}}
    return {**head, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}}


def ends(cluster: Cluster) -> dict[str, set[str]]:
    """By the name of each set and TrainJob, the conditions that are True."""
    found = [*cluster.api("GET", SETS)["items"], *cluster.api("GET", TRAIN_JOBS)["items"]]
    result: dict[str, set[str]] = {}
    for one in found:
        conditions = (one.get("status") or {}).get("conditions", ())
        key = f"{one['kind']}/{one['metadata']['name']}"
        result[key] = {c["type"] for c in conditions if c["status"] == "True"}
    return result


@pytest.mark.timeout(900)
def test_every_layer_goes_on(cluster: Cluster) -> None:
    cluster.up()
    mark = cluster.data.parent / "failed-once"
    cluster.api("POST", SETS, job_set("wide", replicated("node", NAP, replicas=3)))
    steps = (replicated("first", NAP), replicated("second", NAP, dependsOn=[{"name": "first", "status": "Complete"}]))
    cluster.api("POST", SETS, job_set("steps", *steps))
    again = replicated("node", FAILS_ONCE.replace("{mark}", str(mark)))
    cluster.api("POST", SETS, job_set("again", again, failurePolicy={"maxRestarts": 3}))
    cluster.api("POST", SETS, job_set("fails", replicated("node", "sleep 0.5; exit 3")))
    cluster.api("POST", TRAIN_JOBS, train_job("trains", NAP))
    cluster.api("POST", TRAIN_JOBS, train_job("breaks", "sleep 1; exit 3"))
    chance = random.Random(45)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.5))  # any moment: that is the point
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up()
    expected = {
        "JobSet/wide": "Completed",
        "JobSet/steps": "Completed",
        "JobSet/again": "Completed",
        "JobSet/fails": "Failed",
        "JobSet/trains": "Completed",
        "JobSet/breaks": "Failed",
        "TrainJob/trains": "Complete",
        "TrainJob/breaks": "Failed",
    }
    cluster.until(lambda: all(ends(cluster).get(name) for name in expected), lambda: str(ends(cluster)), 240)
    found = ends(cluster)
    assert all(end in found[name] for name, end in expected.items()), found
    (restarted,) = (one for one in cluster.api("GET", SETS)["items"] if one["metadata"]["name"] == "again")
    assert 1 <= restarted["status"]["restarts"] <= 3, restarted["status"]
    jobs = {job["metadata"]["name"]: job["status"] for job in cluster.api("GET", JOBS)["items"]}
    wanted = {"wide-node-0", "wide-node-1", "wide-node-2", "steps-first-0", "steps-second-0", "trains-node-0"}
    assert wanted <= set(jobs), sorted(jobs)
    for name in wanted:
        assert (jobs[name]["succeeded"], jobs[name].get("failed", 0)) == (2, 0), (name, jobs[name])
    assert not any(pod["metadata"].get("finalizers") for pod in cluster.api("GET", PODS)["items"])
    for collection in (TRAIN_JOBS, SETS):
        cluster.api("DELETE", f"{collection}?propagationPolicy=Background")
    cluster.until(lambda: not cluster.api("GET", PODS)["items"], "the pods to go", 120)
    assert not cluster.api("GET", JOBS)["items"]
