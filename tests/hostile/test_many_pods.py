"""A node holds a finite number of pods: what could never fit is refused at once, and what does not fit now waits and says why."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.cluster import lent


def test_more_pods_than_nodes_hold_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with lent(tmp_path) as cluster:
        cluster.up("--max-pods", "3", "--network", "rewrite")
        (node,) = cluster.api("GET", "/api/v1/nodes")["items"]
        assert node["status"]["allocatable"]["pods"] == "3"
        refusal = cluster.run("rowlock", "run", "--nnodes", "30000", "--", "true", code=1)
        assert "the job asks for 30000 pods, but the cluster's only node holds 3: ask for fewer pods" in refusal
        assert len(refusal.strip().splitlines()) == 1
        assert cluster.api("GET", "/api/v1/namespaces/runai-default/pods")["items"] == []
        cluster.run("rowlock", "run", "-d", "--nnodes", "2", "--name", "first", "--", "sleep", "300")
        cluster.until(lambda: "Running" in cluster.run("rowlock", "list"), "the first job to run")
        cluster.run("rowlock", "run", "-d", "--nnodes", "2", "--name", "second", "--", "true")
        cluster.until(lambda: "pods" in cluster.run("rowlock", "explain", "second"), "the reason")
        said = cluster.run("rowlock", "explain", "second")
        assert "Too many pods" in said, said
