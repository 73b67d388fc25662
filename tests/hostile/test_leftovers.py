"""A database that is lost does not take with it what pods and claims had on disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, make

from rowlock.kubelet.node.leftovers import set_aside

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
POD = {
    "metadata": {"name": "writer"},
    "spec": {
        "restartPolicy": "Never",
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {
                "name": "main",
                "image": "host",
                "command": ["sh", "-c", "echo precious > /data/weights"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
    },
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = make(tmp_path / "data", tmp_path)
    yield cluster
    subprocess.run(["rowlock", "down", "--yes"], env=cluster.env, capture_output=True, timeout=60)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("loss", ["missing", "empty"])
def test_a_lost_database_deletes_no_claim(cluster: Cluster, loss: str) -> None:
    cluster.up()
    cluster.api("POST", "/api/v1/namespaces/default/persistentvolumeclaims", CLAIM)
    cluster.api("POST", "/api/v1/namespaces/default/pods", POD)
    path = "/api/v1/namespaces/default/pods/writer"
    cluster.until(lambda: cluster.api("GET", path)["status"].get("phase") == "Succeeded", "the pod to end")
    cluster.run("rowlock", "down", "--yes")
    for file in cluster.data.glob("cluster.db*"):
        file.unlink()
    if loss == "empty":
        (cluster.data / "cluster.db").touch()
    output = cluster.run("rowlock", "up", "-d")
    assert "cluster.db was missing or empty, so this is a new cluster" in output
    kept = [path.read_text() for path in cluster.data.glob("previous-*/claims/**/weights")]
    assert kept == ["precious\n"]
    cluster.run("rowlock", "down", "--yes")
    assert "missing or empty" not in cluster.run("rowlock", "up", "-d"), "said once"


def test_a_new_directory_has_nothing_to_set_aside(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "pods").mkdir()
    assert set_aside(tmp_path, 0.0) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "pods"]
