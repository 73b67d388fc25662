"""One embedded cluster with operators and without a node: the tests play the kubelet where a pod has to run.

Every test gets a namespace of its own, made with a client under test's own means.
"""

from __future__ import annotations

import gc
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server


@dataclass(frozen=True)
class Site:
    """A cluster, and a namespace in it that nobody else uses."""

    kubeconfig: Path
    namespace: str

    def config_map(self, name: str, **data: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.namespace, "labels": {"made-by": "a-test"}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}

    def pod(self, name: str) -> dict[str, Any]:
        container = {"name": "main", "image": "example.test/none:1"}
        meta = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}

    def job(self, name: str, workers: int = 1) -> dict[str, Any]:
        container = {"name": "pytorch", "image": "example.test/none:1", "command": ["true"]}
        template = {"spec": {"containers": [container]}}
        replicas = {"Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": template}}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"pytorchReplicaSpecs": replicas},
        }


@pytest.fixture(scope="module", autouse=True)
def left_open() -> Iterator[None]:
    """A connection that a client of this file leaves open is told of here, where the file's marks say whether that is the client's fault,
    and not in the test during which the garbage is collected."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("clients")
    with embedded_server(where, "rowlock.serve", "--without", "kubelet,scheduler") as kubeconfig:
        yield kubeconfig


@pytest.fixture
def site(served: Path) -> Site:
    """The namespace is made with the official client, which is a dependency of the tests anyway."""
    kubernetes = pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")
    namespace = "clients-" + uuid.uuid4().hex[:8]
    with kubernetes.config.new_client_from_config(str(served)) as api:
        kubernetes.client.CoreV1Api(api).create_namespace({"metadata": {"name": namespace}})
    return Site(served, namespace)


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, text=True, capture_output=True, timeout=900, **options)
