"""`rowlock up --parity`: how closely the job operators follow Kubeflow's is the user's choice."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs"


def job() -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "host"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job"},
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}},
            "runPolicy": {"managedBy": "kubeflow.org/training-operator"},
        },
    }


def refusal(cluster: Cluster, path: str, patch: dict[str, Any]) -> str:
    """What the API says to a merge patch; "" when it takes it."""
    facts = json.loads((cluster.data / "server.json").read_text())
    token = (cluster.data / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    request = urllib.request.Request(facts["url"] + path, json.dumps(patch).encode(), headers, method="PATCH")
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    try:
        with urllib.request.urlopen(request, context=tls, timeout=200):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["message"])


@pytest.mark.parametrize(("parity", "refused"), [("default", False), ("fixed", True)])
def test_managed_by_of_a_pytorchjob_is_immutable_only_where_it_was_mended(
    cluster: Cluster, parity: str, refused: bool
) -> None:
    cluster.up("--parity", parity, "--without", "kubelet,scheduler")
    cluster.api("POST", JOBS, job())
    said = refusal(cluster, f"{JOBS}/job", {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}})
    assert ("field is immutable" in said) is refused
    cluster.api("DELETE", f"{JOBS}/job")  # nobody here would suspend it at the end: it is another's now


def test_an_unknown_parity_is_refused_with_those_that_there_are(cluster: Cluster) -> None:
    said = cluster.run("rowlock", "up", "-d", "--parity", "strickt", code=2)
    assert "strict" in said
