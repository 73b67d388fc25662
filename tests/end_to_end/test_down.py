"""`rowlock down` never waits long for jobs that nobody stops, and names them."""

from __future__ import annotations

import time

from tests.end_to_end.cluster import Cluster

ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "silent"},
    "status": {"capacity": ROOM, "allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]},
}


def test_down_waits_once_for_all_jobs_that_nobody_stops(cluster: Cluster) -> None:
    """Pods on a node that has no kubelet are never taken away."""
    cluster.up("--without", "kubelet")
    cluster.run("rowlock", "run", "-d", "--name", "waits", "-g", "1", "--", "true")
    cluster.api("POST", "/api/v1/nodes", NODE)
    for name in ("one", "two", "three"):
        cluster.run("rowlock", "run", "-d", "--name", name, "--", "true")
    pods = "/api/v1/namespaces/runai-default/pods"
    deadline = time.monotonic() + 30
    while sum("nodeName" in pod["spec"] for pod in cluster.api("GET", pods)["items"]) < 3:
        assert time.monotonic() < deadline, cluster.run("rowlock", "list")
        time.sleep(0.05)
    began = time.monotonic()
    said = cluster.run("rowlock", "down", "--yes", "--timeout", "3s")
    assert time.monotonic() - began < 8, "3 seconds for all, not for each"
    assert "1 unfinished job was stopped" in said
    assert "3 unfinished jobs" in said and "did not stop in time" in said
    assert all(name in said for name in ("one", "two", "three"))


def test_down_names_the_pods_of_no_job_which_go_on(cluster: Cluster) -> None:
    cluster.up()
    body = {
        "metadata": {"name": "alone"},
        "spec": {
            "containers": [{"name": "main", "image": "rowlock.dev/host", "command": ["sleep", "100000"]}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    one = "/api/v1/namespaces/runai-default/pods/alone"
    cluster.api("POST", one.rpartition("/")[0], body)
    cluster.until(lambda: cluster.api("GET", one)["status"].get("phase") == "Running", "alone to run")
    said = cluster.run("rowlock", "down")
    assert "1 pod without a job goes on (runai-default/alone)" in said, said
    cluster.up()
    assert cluster.api("GET", one)["status"]["phase"] == "Running", "the next server finds it"
    cluster.api("DELETE", one)
    assert "without a job" not in cluster.run("rowlock", "down")
