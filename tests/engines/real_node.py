"""The other engine of the web UI's tests: `RealEngine` with one real node, whose kubelet runs what the tests submit.

Needs root and Debian's containerd (`scripts/real_cluster/node.py`). The node says that it has two GPUs, as the simulated ones of the
embedded engine; nothing looks for cards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.subjects import REPO, real_cluster
from tests.end_to_end.cluster import Cluster, lent, make
from tests.engines.real_engine import PATIENCE, RealEngine

from rowlock import kinds
from rowlock.errors import AlreadyExists
from rowlock.objects import labels

NODE, GPUS = "real-node", 2
IMAGE = "localhost/host:1"
"""Sees this machine's programs (`scripts/real_cluster/node.py`)."""
PYTHON = os.path.realpath(sys.executable)
HEARS = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(143))\n"
"""The first process of a container hears SIGTERM only if it asks to; else its pod would stay for the 30 s of its grace."""
VIEWER = "rowlock-test-viewer"
VIEWS: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
]
"""What somebody may who may only look."""
KUBERNETES = ("/apis/", "/api/v1/namespaces/", "/api/v1/nodes")
"""Paths of the cluster's API server; the REST API is our server's."""


@dataclass
class RealNodeCluster(Cluster):
    """Commands lead to our server, and what is the Kubernetes API to the cluster."""

    kubeconfig: Path = Path()

    def door(self, path: str) -> tuple[str, str, Path]:
        if not path.startswith(KUBERNETES):
            return super().door(path)
        config = json.loads(self.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        return cluster["server"], config["users"][0]["user"]["token"], Path(cluster["certificate-authority"])


class RealNode(RealEngine):
    """A cluster with one node that stays, and what a test of the UI asks of its engine."""

    keeps_nodes = True

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        super().__init__(cluster, kubeconfig)
        self._labels: Mapping[str, str] = {}

    def prepare(self) -> None:
        """Give the node its GPUs, and make the role of those who may look."""
        capacity = {"status": {"capacity": {"nvidia.com/gpu": str(GPUS)}, "allocatable": {"nvidia.com/gpu": str(GPUS)}}}
        self.do(lambda: self.kube.patch(kinds.NODE, "", NODE, capacity, type="merge", subresource="status"))
        self._labels = labels(self.do(lambda: self.kube.get(kinds.NODE, "", NODE)))
        role = {"metadata": {"name": VIEWER}, "rules": VIEWS}
        with suppress(AlreadyExists):  # a cluster that ran before (`ROWLOCK_REAL_CLUSTER_KUBECONFIG`)
            self.do(lambda: self.kube.create(kinds.CLUSTER_ROLE, role))
        self.cluster.until(self._has_gpus, "the server knows of the node's GPUs", PATIENCE)

    def _has_gpus(self) -> bool:
        """The kubelet makes what there is allocatable when it writes the node's status the next time, within ten seconds."""
        nodes = self.cluster.api("GET", "/api/v1/scheduler/snapshot")["nodes"]
        return [one["gpus"] for one in nodes] == [GPUS]

    def sweep(self) -> None:
        """And what a test has changed of the node."""
        super().sweep()
        if not self._labels:
            return
        now = labels(self.do(lambda: self.kube.get(kinds.NODE, "", NODE)))
        patch = {"metadata": {"labels": {key: self._labels.get(key) for key in (*now, *self._labels)}}}
        self.do(lambda: self.kube.patch(kinds.NODE, "", NODE, patch, type="merge"))

    def lend(self, home: Path) -> RealNodeCluster:
        """The cluster for one test, with a data directory of its own, below `home`."""
        made = make(self.lend_directory(home / "data"), home)
        return RealNodeCluster(made.data, made.env, self.kubeconfig)

    def start_server(self) -> None:
        flags = ("--kubeconfig", str(self.kubeconfig), "--scheduler", "own", "--install-crds")
        self.cluster.up(*flags)
        self.cluster.until(
            lambda: f"_{self.cluster.pid}_" in self.cluster.run("rowlock", "status"), "it leads", PATIENCE
        )

    def forget_history(self) -> None:
        """Begin anew with the archive, which has what tests before have deleted."""
        self.stop_server()
        shutil.rmtree(self.cluster.data / "archive")
        self.start_server()

    def stop_server(self) -> None:
        self.cluster.run("rowlock", "down", "--yes")


def node_missing() -> str:
    """Why no real node can run here; "" when one can."""
    asked = [sys.executable, "scripts/real_cluster", "can-run-a-node"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=REPO).stdout.strip()


@contextmanager
def real_node(directory: Path) -> Iterator[RealNode]:
    """Started once for all tests of a run."""
    (directory / "home").mkdir()
    if not sys.base_prefix.startswith("/usr"):
        os.environ["ROWLOCK_REAL_NODE_MOUNT"] = sys.base_prefix
    flags = ("--operator", "--kubelet")
    with real_cluster(directory / "plane", *flags) as kubeconfig, lent(directory / "home") as cluster:
        cluster.env["LOGNAME"] = "ana"
        engine = RealNode(cluster, kubeconfig)
        engine.start_server()
        with engine.running():
            engine.prepare()
            engine.sweep()
            yield engine
