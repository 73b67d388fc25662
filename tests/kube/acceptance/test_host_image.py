"""`rowlock.dev/host` on a real cluster: a kubelet there would pull that name from the internet, so every face refuses it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.test_served_cluster import kubectl

import rowlock
from rowlock.sdk.client_errors import ClientError

pytestmark = pytest.mark.real
HOST = "rowlock.dev/host"
MEANS = "'rowlock.dev/host' means the programs of one machine"
ADVICE = "Name an image that holds the program"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    home = tmp_path_factory.mktemp("served")
    with real_cluster(tmp_path_factory.mktemp("real"), "--operator") as kubeconfig, lent(home) as made:
        made.up("--kubeconfig", str(kubeconfig), "--install-crds")
        made.run("rowlock", "project", "create", "team-a")
        made.env["KUBECONFIG"] = str(kubeconfig)
        yield made


@pytest.fixture(autouse=True)
def _nothing_was_made(served: Cluster) -> Iterator[None]:
    yield
    kinds = "pytorchjobs,tfjobs,mpijobs,jobs.batch,pods,configmaps"
    made = kubectl(Path(served.env["KUBECONFIG"]), "get", kinds, "-n", "runai-team-a", "-o", "name").split()
    assert [name for name in made if "kube-root-ca.crt" not in name] == []


@pytest.mark.parametrize(
    "line",
    [
        ("runai", "submit-dist", "pytorch", "j", "--workers=1", "-p", "team-a", "-i", HOST, "--", "true"),
        ("runai", "submit", "j", "-p", "team-a", "-i", HOST, "--", "true"),
        ("runai", "submit-mpi", "j", "--workers=1", "-p", "team-a", "-i", f"{HOST}:1", "--", "true"),
        ("runai", "training", "pytorch", "submit", "j", "-p", "team-a", "-i", HOST, "--workers", "1", "--", "true"),
        ("runai", "workspace", "submit", "j", "-p", "team-a", "-i", HOST),
    ],
    ids=lambda line: " ".join(line[:3]),
)  # fmt: skip
def test_both_generations_of_runai(served: Cluster, line: tuple[str, ...]) -> None:
    refused = served.run(*line, code=1)
    assert refused.count("means the programs of one machine") == 1 and ADVICE in refused, refused


def test_rowlock_run_and_notebook(served: Cluster) -> None:
    for words in (("--", "true"), ("-d", "--nnodes", "2", "--", "true")):
        assert "name an image with --image" in served.run("rowlock", "run", "-p", "team-a", *words, code=2)
    assert MEANS in served.run(
        "rowlock", "run", "-d", "-p", "team-a", "--image", f"{HOST}:2", "--", "true", code=1
    ).replace(":2'", "'")
    assert "an image that has JupyterLab" in served.run(
        "rowlock", "notebook", "--python", "/bin/true", "-p", "team-a", code=2
    )


def test_the_python_client(served: Cluster) -> None:
    with rowlock.Client(data_dir=served.data, project="team-a") as client:
        with pytest.raises(ClientError, match="means the programs of one machine"):
            client.submit("j", ["true"])
        with pytest.raises(ClientError, match="means the programs of one machine"):
            client.submit_function(print)


def job(image: str, **pod: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": image, "command": ["true"]}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container], **pod}}}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    return {**kind, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}


FETCHES = job("localhost/a:1", initContainers=[{"name": "fetch", "image": HOST}])


def test_manifests(served: Cluster, tmp_path: Path) -> None:
    """Also those that name a scheduler, a kind of Kubernetes' own, and a field that no row of a table knows."""
    own = job(HOST, schedulerName="rowlock-scheduler")
    batch = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": HOST}]}}},
    }  # fmt: skip
    path = tmp_path / "job.json"
    for manifest in (job(HOST), own, FETCHES, batch):
        path.write_text(json.dumps(manifest))
        refused = served.run("runai", "workload", "submit", "-f", str(path), "-p", "team-a", code=1)
        assert MEANS in refused and ADVICE in refused, refused
        assert MEANS in served.run("rowlock", "check", "-f", str(path), "-p", "team-a", code=None)


@pytest.mark.parametrize("path", ["distributed", "trainings", "workspaces"])
def test_the_rest_api(served: Cluster, path: str) -> None:
    projects = served.api("GET", "/api/v1/org-unit/projects")["projects"]
    project = next(one["id"] for one in projects if one["name"] == "team-a")
    spec = {"image": HOST, **({"distributedFramework": "PyTorch", "numWorkers": 1} if path == "distributed" else {})}
    cluster = served.api("GET", "/api/v1/clusters")[0]["uuid"]
    body = {"name": "j", "projectId": project, "clusterId": cluster, "spec": spec}
    with pytest.raises(pytest.fail.Exception, match=r"400.*spec\.image.*means the programs of one machine"):
        served.api("POST", f"/api/v1/workloads/{path}", body)
    with pytest.raises(pytest.fail.Exception, match="400"):
        served.api("POST", f"/api/v1/workloads/{path}?dryRun=true", body)
    encoded = base64.b64encode(json.dumps(FETCHES).encode()).decode()
    second = {"metadata": {"name": "j", "projectId": project, "clusterId": cluster}, "manifestBase64Encoded": encoded}
    with pytest.raises(pytest.fail.Exception, match=r"400.*means the programs of one machine"):
        served.api("POST", "/api/v2/workloads", second)


def test_an_image_of_a_registry_is_taken(served: Cluster) -> None:
    served.run("runai", "submit", "taken", "-p", "team-a", "-i", "registry.example/host:1", "--", "true")
    served.run("rowlock", "delete", "taken", "-p", "team-a")
    served.until(
        lambda: (
            not kubectl(Path(served.env["KUBECONFIG"]), "get", "pods,pytorchjobs", "-n", "runai-team-a", "-o", "name")
        ),
        "the job is gone",
    )
