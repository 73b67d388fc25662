"""Programs in containers find Services and the API server at this machine's address in the engine's network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers.conftest import IMAGE
from tests.end_to_end.cluster import Cluster, lent
from tests.kubelet.conftest import Node, on_node, until
from tests.kubelet.network.test_services import CLIENT, SERVER, add_service, is_ready, python

SPACE, RIGHTS = "/api/v1/namespaces/default", "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
ASK = """
import json, os, ssl, sys, urllib.error, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount"
token, tls = open(f"{place}/token").read(), ssl.create_default_context(cafile=f"{place}/ca.crt")
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
for what in ("pods", "secrets"):
    request = urllib.request.Request(f"{server}/api/v1/namespaces/default/{what}", headers={"Authorization": f"Bearer {token}"})
    try:
        print(sorted(pod["metadata"]["name"] for pod in json.load(urllib.request.urlopen(request, context=tls))["items"]))
    except urllib.error.HTTPError as refused:
        print(refused.code)
"""


def test_a_container_finds_services_by_their_variables(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(python("server", SERVER, "8000", app="server"))
        await until(is_ready(node, "server"), "the server is ready")
        await add_service(node, "track", "server")
        places = ("$TRACK_SERVICE_HOST $TRACK_SERVICE_PORT", "$TRACK_PORT_80_TCP_ADDR $TRACK_PORT_80_TCP_PORT")
        await node.add(python("client", CLIENT, *places))
        await node.ended("client")
        lines = (await node.log("client")).splitlines()
        assert len(lines) == 2 and all(line.startswith("server saw ") for line in lines), lines
        show = "import os; print([n for n in os.environ if n.startswith('TRACK')])"
        await node.add(python("silent", show, enableServiceLinks=False))
        await node.ended("silent")
        assert (await node.log("silent")).strip() == "[]"

    on_node(tmp_path, body)


@pytest.fixture
def cluster(tmp_path: Path, docker: str) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        made.env["DOCKER_HOST"] = f"unix://{docker}"
        made.up()
        yield made


def test_a_container_is_its_service_account(cluster: Cluster) -> None:
    cluster.api("POST", f"{SPACE}/serviceaccounts", {"metadata": {"name": "robot"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    cluster.api(
        "POST", f"{RIGHTS}/rolebindings", {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
    )

    def run(name: str, account: str, program: str) -> list[str]:
        container = {"name": "main", "image": IMAGE, "command": ["python3", "-c", program]}
        spec = {"serviceAccountName": account, "restartPolicy": "Never", "containers": [container]}
        cluster.api("POST", f"{SPACE}/pods", {"metadata": {"name": name}, "spec": spec})
        found = f"{SPACE}/pods/{name}"
        cluster.until(
            lambda: cluster.api("GET", found)["status"]["phase"] in ("Succeeded", "Failed"),
            lambda: f"{name} to end: {json.dumps(cluster.api('GET', found)['status'])}",
        )
        log = cluster.data / "pods" / cluster.api("GET", found)["metadata"]["uid"] / "main" / "log.0"
        return [line.split(" ", 1)[1] for line in log.read_text().splitlines()]

    assert run("p", "robot", ASK) == ["['p']", "403"]
    without = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io/serviceaccount'), 'KUBERNETES_SERVICE_HOST' in os.environ)"
    assert run("q", "default", without) == ["False False"]


def test_a_launcher_in_a_container_reaches_its_workers(cluster: Cluster) -> None:
    """With what mpirun calls instead of ssh, and the `kubectl` that is behind it."""
    agent = "/etc/mpi/kubexec.sh far-worker-0 'hostname; cat; echo wrong >&2; exit 7' < /etc/hostname"
    program = f"cd /; {agent}; echo code $?; /opt/kube/kubectl get pods; echo code $?"
    words = {"Launcher": ["sh", "-c", program], "Worker": ["sleep", "600"]}
    replicas = {
        kind: {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "mpi", "image": IMAGE, "command": words[kind]}]}},
        }
        for kind in words
    }
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "far"},
        "spec": {"mpiReplicaSpecs": replicas},
    }
    cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/mpijobs", body)
    cluster.run("rowlock", "wait", "far", "--for", "completed", "--timeout", "120s")
    lines = cluster.run("rowlock", "logs", "far").splitlines()
    said = [line.partition("] ")[2] or line for line in lines]
    assert {"far-worker-0", "far-launcher", "wrong", "code 7", "code 1"} <= set(said), said
    assert any("this kubectl knows only" in line for line in said), said
