"""A node goes away under a running gang: the whole gang starts again elsewhere, within seconds, whatever its restartPolicy."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.cluster import Cluster

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs"
PODS = "/api/v1/namespaces/runai-default/pods"


def job(name: str, workers: int) -> Any:
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    specs = {"Master": replica, "Worker": {**replica, "replicas": workers}}
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    return {**kind, "metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": specs}}


def test_the_gang_starts_again_elsewhere(cluster: Cluster) -> None:
    cluster.up("--pretend-nodes", "3", "--simulated-gpus", "2", "--without", "kubelet")
    cluster.api("POST", JOBS, job("train", 3))

    def running() -> dict[str, str]:
        """uid → node of the pods that run and are not leaving."""
        return {
            p["metadata"]["uid"]: p["spec"]["nodeName"]
            for p in cluster.api("GET", PODS)["items"]
            if p.get("status", {}).get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")
        }

    cluster.until(lambda: len(running()) == 4, "the gang runs")
    before = running()
    lost = sorted(before.values())[0]
    cluster.api("DELETE", f"/api/v1/nodes/{lost}")
    cluster.until(
        lambda: len(now := running()) == 4 and not set(now) & set(before) and lost not in now.values(),
        "all four pods are new and run on the other nodes", 120,  # five minutes are what a toleration would take
    )  # fmt: skip
    found = cluster.api("GET", f"{JOBS}/train")["status"]["conditions"]
    assert "Failed" not in {c["type"] for c in found if c["status"] == "True"}

    def told() -> bool:
        events = cluster.api("GET", "/api/v1/namespaces/runai-default/events")["items"]
        return any(f"node {lost} of its gang is gone; the gang starts again whole" in e["message"] for e in events)

    cluster.until(told, "events say why")
