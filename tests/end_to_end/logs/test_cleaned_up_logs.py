"""Logs of a job whose pods its clean-up policy has removed: the launcher of an MPIJob, whose pod has no number, is among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import Cluster


def _role(script: str, replicas: int) -> dict[str, Any]:
    container = {"name": "mpi", "image": "host", "command": ["sh", "-c", script]}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


def test_the_launcher_is_in_the_log_when_all_pods_are_gone(cluster: Cluster, tmp_path: Path) -> None:
    """It ends the job, and with it the workers, when both have spoken."""
    cluster.up()
    launches = (
        f"until [ -e {tmp_path}/mpi-worker-0 ] && [ -e {tmp_path}/mpi-worker-1 ]; do sleep 0.05; done; echo launched"
    )
    works = f"echo works; touch {tmp_path}/$HOSTNAME; exec sleep 60"
    path = "/apis/kubeflow.org/v1/namespaces/runai-default/mpijobs"
    replicas = {"Launcher": _role(launches, 1), "Worker": _role(works, 2)}
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "All"}, "mpiReplicaSpecs": replicas}
    cluster.api(
        "POST", path, {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "mpi"}, "spec": spec}
    )
    cluster.run("rowlock", "wait", "mpi", "--for=completed", "--timeout", "200s")
    pods = "/api/v1/namespaces/runai-default/pods"
    cluster.until(lambda: not cluster.api("GET", pods)["items"], "the pods to be gone")
    assert sorted(cluster.run("rowlock", "logs", "mpi").splitlines()) == [
        "[launcher-0] launched",
        "[worker-0] works",
        "[worker-1] works",
    ]
    assert cluster.run("runai", "logs", "mpi") == "launched\n"  # of the launcher, as while its pod was there
