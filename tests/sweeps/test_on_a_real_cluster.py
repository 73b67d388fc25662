"""Sweeps of `rowlock up --kubeconfig`: on a cluster that is not ours, an embedded one here and a real one where it is built."""

from __future__ import annotations

import json
import os
import signal
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.test_own_scheduler import ADMIN, bound_pods, cluster_without_scheduler, job_of, pods
from tests.kube.test_served_cluster import kubectl

_numbers = count()


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What our server gets: a cluster with job operators and nodes whose pods end when the test says so."""
    with cluster_without_scheduler(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def admin_of(kubeconfig: Path) -> Path:
    path = kubeconfig.parent / ADMIN
    return path if path.exists() else kubeconfig


@pytest.fixture
def project() -> str:
    """A project of the test's own: the cluster takes its time to delete one."""
    return f"team-{next(_numbers)}"


@pytest.fixture
def served(tmp_path: Path, kubeconfig: Path, project: str) -> Iterator[Cluster]:
    (tmp_path / "first").mkdir()
    with lent(tmp_path / "first") as made:
        made.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
        made.run("rowlock", "project", "create", project)
        yield made
    kubectl(admin_of(kubeconfig), "delete", "namespace", f"runai-{project}", "--ignore-not-found", "--wait=false")


def runs(served: Cluster, sweep: str, project: str) -> dict[str, str]:
    """Name → phase, of the runs that were made."""
    shown = served.json("rowlock", "sweep", "show", sweep, "-p", project, "--json")
    return {run["name"]: run["phase"] for run in shown["entries"] if run["phase"] != "Waiting"}


def complete(served: Cluster, kubeconfig: Path, job: str, project: str) -> None:
    """The only pod of a job has run and succeeded."""
    served.until(lambda: bound_pods(served, job), f"the pod of {job} is bound")
    (pod,) = (pod for pod in pods(served) if job_of(pod) == job)
    ended = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}
    container = {
        "name": "pytorch", "image": "nothing:1", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended},
    }  # fmt: skip
    status = json.dumps({"status": {"phase": "Succeeded", "containerStatuses": [container]}})
    where = ("-n", f"runai-{project}", "pod", pod["metadata"]["name"])
    kubectl(admin_of(kubeconfig), "patch", *where, "--subresource=status", "--type=merge", "-p", status)
    served.until(lambda: runs(served, job.rpartition("-")[0], project).get(job) == "Completed", f"{job} has completed")


def test_another_server_goes_on_with_a_sweep(served: Cluster, kubeconfig: Path, tmp_path: Path, project: str) -> None:
    """It has nothing of the first one: no data directory, and not its process."""
    space = ("--param", "x=1..4", "--max-parallel", "2", "-i", "nothing:1", "-p", project)
    served.run("rowlock", "sweep", "walk", *space, "--", "echo", "{x}")
    served.until(lambda: len(runs(served, "walk", project)) == 2, "as many are made as may be unfinished")
    complete(served, kubeconfig, "walk-0", project)
    served.until(lambda: set(runs(served, "walk", project)) == {"walk-0", "walk-1", "walk-2"}, "the next run is made")
    os.kill(served.pid, signal.SIGKILL)
    (tmp_path / "second").mkdir()
    with lent(tmp_path / "second") as second:
        second.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
        for number in (1, 2, 3):
            complete(second, kubeconfig, f"walk-{number}", project)
        second.until(
            lambda: second.json("rowlock", "sweep", "list", "-p", project, "--json")[0]["phase"] == "Completed",
            "the sweep has completed",
        )
        second.run("rowlock", "sweep", "delete", "walk", "-y", "-p", project)
        second.until(lambda: not pods(second), "the cluster deletes the runs with their sweep")


def test_runs_are_made_while_the_submitter_may_create_them(served: Cluster, kubeconfig: Path, project: str) -> None:
    admin, namespace = admin_of(kubeconfig), f"runai-{project}"
    kubectl(admin, "create", "serviceaccount", "ana", "-n", namespace)
    kubectl(
        admin,
        "create",
        "rolebinding",
        "reads",
        "-n",
        namespace,
        "--clusterrole=cluster-admin",
        f"--serviceaccount={namespace}:ana",
    )
    token = kubectl(admin, "create", "token", "ana", "-n", namespace).strip()
    body = {
        "name": "asks", "parameters": {"x": "1..3"}, "maxParallel": 1,
        "workload": {
            "projectId": project,
            "spec": {"image": "nothing:1", "distributedFramework": "PyTorch", "noWorkers": True, "command": ["echo", "{x}"]},
        },
    }  # fmt: skip
    served.until(lambda: may_list(served, token, project), "the server knows of the role")
    served.api("POST", "/api/v1/sweeps", body, token=token)
    complete(served, kubeconfig, "asks-0", project)
    served.until(lambda: "asks-1" in runs(served, "asks", project), "the next run is made")
    kubectl(admin, "delete", "rolebinding", "reads", "-n", namespace)
    served.until(lambda: not may_list(served, token, project), "the server knows that the role was taken away")
    complete(served, kubeconfig, "asks-1", project)
    path = f"/api/v1/namespaces/{namespace}/events"
    served.until(
        lambda: any(event["reason"] == "Forbidden" for event in served.api("GET", path)["items"]), "an Event says why"
    )
    assert set(runs(served, "asks", project)) == {"asks-0", "asks-1"}
    kubectl(
        admin,
        "create",
        "rolebinding",
        "again",
        "-n",
        namespace,
        "--clusterrole=cluster-admin",
        f"--serviceaccount={namespace}:ana",
    )
    served.until(lambda: "asks-2" in runs(served, "asks", project), "it goes on when the right is there again")


def may_list(served: Cluster, token: str, name: str) -> bool:
    answer: dict[str, Any] = served.api("GET", "/api/v1/org-unit/projects", token=token)
    return any(project["name"] == name for project in answer["projects"])


def test_a_secret_without_a_key_is_told(tmp_path: Path, kubeconfig: Path) -> None:
    admin = admin_of(kubeconfig)
    kubectl(admin, "delete", "secret", "rowlock-sweeps", "-n", "rowlock-system", "--ignore-not-found")
    (tmp_path / "secret.json").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rowlock-sweeps", "namespace": "rowlock-system"},
        "data": {"key": b64encode(b"short").decode()},
    }))  # fmt: skip
    kubectl(admin, "apply", "-f", str(tmp_path / "secret.json"))
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(kubeconfig), "--scheduler", "own")
        refusal = made.run("rowlock", "sweep", "list", code=1)
        assert "the Secret rowlock-sweeps in rowlock-system has no key: delete it" in refusal
    kubectl(admin, "delete", "secret", "rowlock-sweeps", "-n", "rowlock-system")
