"""`rowlock backup` and `rowlock restore`, as a user meets them; a disk that is full."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.end_to_end.cluster import lent, make


def test_a_restored_cluster_has_its_jobs_and_its_clients(tmp_path: Path) -> None:
    file = tmp_path / "cluster.tar"
    with lent(tmp_path) as cluster:
        cluster.up()
        cluster.run("rowlock", "run", "--name", "short", "--", "true")
        cluster.run("rowlock", "run", "-d", "--name", "long", "--", "sleep", "300")
        cluster.until(lambda: "Running" in cluster.run("rowlock", "list"), "the job to run")
        output = cluster.run("rowlock", "backup", str(file))
        assert f"{file}: " in output and "(2 jobs, 2 pods, " in output and "ca.crt, ca.key" in output
        assert "pods; copy what you need" in output
        token = (cluster.data / "token").read_text()
        cluster.run("rowlock", "down", "--yes")
        restored = make(tmp_path / "restored", tmp_path)
        try:
            assert "holds the cluster of" in cluster.run(
                "rowlock", "restore", str(file), "--data-dir", str(restored.data)
            )
            restored.up()
            assert (restored.data / "token").read_text() == token
            restored.until(lambda: "Running" in restored.run("rowlock", "list"), "the job to run again")
            rows = {line.split()[0]: line.split()[2] for line in restored.run("rowlock", "list").splitlines()[1:]}
            assert rows == {"short": "Completed", "long": "Running"}
            pods = restored.api("GET", "/api/v1/namespaces/runai-default/pods")["items"]
            (ended,) = (pod["status"] for pod in pods if pod["metadata"]["name"] == "short-master-0")
            assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0, "how it ended is kept"
            assert "restored from a backup, which leaves `pods` out" in restored.run("rowlock", "logs", "short", code=1)
            running = [pod for pod in pods if pod["metadata"]["name"] == "long-master-0"]
            restored.until(
                lambda: (restored.data / "pods" / running[0]["metadata"]["uid"]).is_dir(), "a process of its own"
            )
            refusal = restored.run("rowlock", "restore", str(file), code=1)
            assert "is not empty, and a restore replaces nothing" in refusal
        finally:
            restored.run("rowlock", "down", "--yes", code=None)
            shutil.rmtree(restored.data, ignore_errors=True)
