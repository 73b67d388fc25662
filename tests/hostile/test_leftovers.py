"""A database that is lost does not take with it what pods and claims had on disk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, make

from rowlock.kubelet.node import leftovers
from rowlock.kubelet.node.leftovers import limit_growth, set_aside

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
    subprocess.run(["rowlock", "down", "--yes"], env=cluster.env, capture_output=True, timeout=200)


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


def test_what_was_set_aside_goes_after_thirty_days(tmp_path: Path) -> None:
    now, day = 1_800_000_000.0, 86400.0
    for age in (31, 29):
        (tmp_path / "claims" / f"c{age}").mkdir(parents=True)
        assert "are kept for 30 days in" in set_aside(tmp_path, now - age * day)
    outside = tmp_path / "precious"
    outside.mkdir()
    old = next(path for path in tmp_path.glob("previous-*") if (path / "claims" / "c31").exists())
    (old / "claims" / "link").symlink_to(outside)
    (tmp_path / "previous-notes").mkdir()  # not ours
    assert limit_growth(tmp_path, now) == [old.name]
    assert {path.name for path in tmp_path.glob("previous-*/claims/*")} == {"c29"}
    assert outside.is_dir() and (tmp_path / "previous-notes").is_dir()
    assert limit_growth(tmp_path, now) == []


def test_a_long_log_of_the_pod_host_is_put_aside_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LONGEST_LOG", 10)
    path, aside = tmp_path / "podhost.log", tmp_path / "podhost.log.1"
    limit_growth(tmp_path, 0.0)
    with open(path, "ab", buffering=0) as log:
        log.write(b"short\n")
        limit_growth(tmp_path, 0.0)
        assert path.read_bytes() == b"short\n" and not aside.exists()
        log.write(b"and long\n")
        limit_growth(tmp_path, 0.0)
        log.write(b"goes on\n")
    assert (path.read_bytes(), aside.read_bytes()) == (b"goes on\n", b"short\nand long\n")
