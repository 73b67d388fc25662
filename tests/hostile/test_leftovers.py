"""A database that is lost does not take with it what pods and claims had on disk."""

from __future__ import annotations

import shutil
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


@pytest.mark.timeout(240)
def test_an_older_database_deletes_no_claim(cluster: Cluster) -> None:
    """Neither before a person has decided, nor when the loss is accepted."""
    cluster.up()
    cluster.run("rowlock", "down", "--yes")
    database, older = cluster.data / "cluster.db", cluster.data.parent / "older"
    shutil.copy(database, older)
    cluster.up()
    cluster.api("POST", "/api/v1/namespaces/default/persistentvolumeclaims", CLAIM)
    cluster.api("POST", "/api/v1/namespaces/default/pods", POD)
    path = "/api/v1/namespaces/default/pods/writer"
    cluster.until(lambda: cluster.api("GET", path)["status"].get("phase") == "Succeeded", "the pod to end")
    cluster.run("rowlock", "down", "--yes")
    shutil.copy(older, database)
    refusal = cluster.run("rowlock", "up", "-d", code=1)
    assert "cluster.db ends at revision" in refusal and "`rowlock up --accept-loss` goes on" in refusal
    output = cluster.run("rowlock", "up", "-d", "--accept-loss")
    assert "changes after revision" in output and "are lost" in output
    assert (
        "no object any more: claims default/data; pods default/writer. The directories of these claims are kept"
        in output
    )
    marks = cluster.data / "claims" / ".gone"
    cluster.until(lambda: any(marks.glob("default_data_*")), "the collector to have looked at the claim")
    assert [path.read_text() for path in cluster.data.glob("claims/default_data_*/weights")] == ["precious\n"]
    assert "belongs to a claim that this cluster does not know" in (cluster.data / "server.log").read_text()
    cluster.run("rowlock", "down", "--yes")
    assert "lost" not in cluster.run("rowlock", "up", "-d"), "said once"


def test_a_new_directory_has_nothing_to_set_aside(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "pods").mkdir()
    assert set_aside(tmp_path, 0.0) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "pods"]
