"""A pod that nobody but kubectl knows, and that waits for GPUs: `rowlock explain` says what it asks for, what is free and who has it."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.cluster import Cluster

PODS = "/api/v1/namespaces/runai-default/pods"


def pod(name: str, gpus: int = 0, scheduler: str = "", memory: int = 0) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "rowlock.dev/host",
        "command": ["sleep", "600"],
        "resources": {"limits": limits},
    }
    meta = {"name": name, "annotations": {"gpu-memory": str(memory)} if memory else {}}
    return {
        "metadata": meta,
        "spec": {"containers": [container], **({"schedulerName": scheduler} if scheduler else {})},
    }


def test_a_pod_that_waits_for_gpus_is_explained(cluster: Cluster) -> None:
    cluster.up("--simulated-gpus", "4")
    cluster.run("rowlock", "run", "-d", "--name", "train", "-g", "2", "--", "sleep", "600")
    cluster.run("rowlock", "wait", "train", "--for", "running", "--timeout", "200s")
    cluster.api("POST", PODS, pod("shell", gpus=1))
    cluster.until(lambda: cluster.api("GET", f"{PODS}/shell")["spec"].get("nodeName"), "the first pod has a node")
    for scheduler in ("", "kai-scheduler"):
        name = f"waits-{scheduler}".rstrip("-")
        cluster.api("POST", PODS, pod(name, gpus=3, scheduler=scheduler))
        said = cluster.run("rowlock", "explain", name)
        assert said.startswith(f"pod {name} is Pending (for ") and "Each pod needs 3 GPUs; 0 of 1 pods fit now" in said
        assert "GPUs are held by train (2 GPUs) and pod shell (1 GPU)." in said
        assert "asks for: 3 GPUs" in said and "1, 1 GPU free" in said and "ask for 1 GPU per pod" in said
    cluster.api("POST", PODS, pod("share", memory=90_000))
    assert "90000 MiB of 1 GPU" in (said := cluster.run("rowlock", "explain", "share")), said
    assert "at most 81559 MiB free on a GPU" in said or "the largest card has 81559 MiB" in said
    cluster.api("POST", PODS, pod("other", scheduler="my-scheduler"))
    assert "waits for the scheduler my-scheduler" in cluster.run("rowlock", "explain", "other")
    assert "It waits for no node." in cluster.run("rowlock", "explain", "shell")
    assert "is a pod of train: `rowlock explain train`" in cluster.run("rowlock", "explain", "train-master-0", code=1)
    assert "The job nosuch does not exist in project default" in cluster.run("rowlock", "explain", "nosuch", code=1)
    answer = cluster.api("GET", "/api/v1/org-unit/projects/default/pods/waits/explain")
    assert answer["record"]["requested"] == "3 GPUs" and answer["record"]["nodes"]["freeGpus"] == 1
    assert {(one["workloadName"], one["gpus"]) for one in answer["holders"]} == {("train", 2.0), ("shell", 1.0)}
