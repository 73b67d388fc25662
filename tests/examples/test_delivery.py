"""What stands for the image kubectl-delivery: an MPIJob's launcher runs programs in its workers, with no mpirun needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

from rowlock.kubelet.images import kubectl_delivery

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/mpijobs"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("delivery")) as made:
        made.up()
        yield made


def launch(cluster: Cluster, name: str, script: str) -> tuple[str, str]:
    """An MPIJob with one worker whose launcher runs `script`: its phase and its log."""

    def pods(count: int, *command: str) -> dict[str, Any]:
        container = {"name": "mpi", "image": "host", **({"command": list(command)} if command else {})}
        return {"replicas": count, "template": {"spec": {"containers": [container]}}}

    replicas = {"Launcher": pods(1, "sh", "-c", script), "Worker": pods(1)}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": name}}
    policy = {"cleanPodPolicy": "Running"}
    cluster.api("POST", JOBS, {**job, "spec": {"mpiReplicaSpecs": replicas, "runPolicy": policy}})
    log = cluster.run("rowlock", "logs", "-f", name, timeout=200)
    return next(j["phase"] for j in cluster.json("rowlock", "list", "--json") if j["name"] == name), log


def test_the_launcher_runs_a_program_in_its_workers_pod(cluster: Cluster) -> None:
    phase, log = launch(cluster, "greet", "echo in | /etc/mpi/kubexec.sh greet-worker-0 'echo on $HOSTNAME; cat; pwd'")
    assert phase == "Completed", log
    assert "[launcher-0] on greet-worker-0" in log and "[launcher-0] in" in log


def test_the_programs_exit_code_is_the_launchers(cluster: Cluster) -> None:
    phase, log = launch(cluster, "code", "/etc/mpi/kubexec.sh code-worker-0 'exit 7'; echo code $?; exit 1")
    assert phase == "Failed" and "[launcher-0] code 7" in log


def test_the_delivered_program_knows_only_exec(tmp_path: Path) -> None:
    env = {**os.environ, "TARGET_DIR": str(tmp_path), "NAMESPACE": "n"}
    call = [sys.executable, "-m", "rowlock.kubelet.images.kubectl_delivery", str(tmp_path)]
    assert subprocess.run(call, env=env, capture_output=True, timeout=200).returncode == 0
    program = tmp_path / "kubectl"
    for line in (["get", "pods"], ["exec", "a", "sh"], ["exec", "a", "-it", "--", "sh"]):
        done = subprocess.run([program, *line], capture_output=True, text=True, timeout=200)
        assert done.returncode == 1 and "knows only `exec POD" in done.stderr


def test_a_worker_that_never_runs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl_delivery, "PATIENCE", 0.0)
    with pytest.raises(SystemExit, match=r"pod n/job-worker-0 has not run"):
        kubectl_delivery.exec_in_pod(tmp_path, "n", ["exec", "job-worker-0", "--", "true"])
