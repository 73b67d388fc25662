"""A program in a pod speaks to the API server as its service account, with the official client and no configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, make

pytest.importorskip("kubernetes", reason="the official client is not installed")
SPACE, RIGHTS = "/api/v1/namespaces/default", "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
PROGRAM = """
import json
from kubernetes import client, config
config.load_incluster_config()
api, said = client.CoreV1Api(), {}
said["pods"] = [pod.metadata.name for pod in api.list_namespaced_pod("default").items]
try:
    api.list_namespaced_secret("default")
except client.ApiException as error:
    said["refused"] = error.status
said["user"] = client.AuthenticationV1Api().create_self_subject_review({}).status.user_info.username
print(json.dumps(said))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = make(tmp_path / "data", tmp_path)
    yield made
    subprocess.run(["rowlock", "down", "--yes"], env=made.env, capture_output=True, timeout=200)


def make_pod(cluster: Cluster, name: str, account: str, program: str) -> str:
    """Run a program in a pod to its end; what it printed."""
    container = {"name": "main", "image": "host", "command": [sys.executable, "-W", "ignore", "-c", program]}
    spec = {"serviceAccountName": account, "restartPolicy": "Never", "containers": [container]}
    cluster.api("POST", f"{SPACE}/pods", {"metadata": {"name": name}, "spec": spec})
    cluster.until(
        lambda: cluster.api("GET", f"{SPACE}/pods/{name}")["status"]["phase"] in ("Succeeded", "Failed"),
        f"{name} to end",
    )
    uid = cluster.api("GET", f"{SPACE}/pods/{name}")["metadata"]["uid"]
    lines = (cluster.data / "pods" / uid / "main" / "log.0").read_text().splitlines()
    return "\n".join(line.split(" ", 1)[1] for line in lines)


def test_a_pod_is_its_service_account(cluster: Cluster) -> None:
    cluster.up("--cpus-per-node", "4")
    cluster.api("POST", f"{SPACE}/serviceaccounts", {"metadata": {"name": "robot"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    binding = {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
    cluster.api("POST", f"{RIGHTS}/rolebindings", binding)
    said = json.loads(make_pod(cluster, "p", "robot", PROGRAM))
    assert said == {"pods": ["p"], "refused": 403, "user": "system:serviceaccount:default:robot"}
    bare = make_pod(
        cluster, "q", "default", "import os; print(os.path.exists('/var/run/secrets/kubernetes.io/serviceaccount'))"
    )
    assert bare == "False"
