"""The seeds' `-g 0.1` job: three pods share one card, whole or not at all, and the books say 0.3 of a GPU."""

from __future__ import annotations

import json

from tests.end_to_end.cluster import Cluster

SUBMIT = "runai submit-dist pytorch {} --workers={} -g 0.1 -i /kubeflow/pytorch-dist-mnist:latest -- sh -c"
WAITING = 'echo card $ROWLOCK_SIMULATED_GPU portion $GPU_PORTION; while [ ! -e "{}" ]; do sleep 0.05; done'


def test_three_tenths_of_one_simulated_card(cluster: Cluster) -> None:
    cluster.up("--simulated-gpus", "1")
    cluster.run("rowlock", "project", "create", "team-a", "--gpus", "1")
    cluster.run("runai", "config", "project", "team-a")
    cluster.run("rowlock", "image", "add", "/kubeflow/pytorch-dist-mnist:latest", "--host")
    script = WAITING.format(cluster.data.parent / "stop")
    cluster.run(*SUBMIT.format("dist-train1", 2).split(), script)
    cluster.run("rowlock", "wait", "dist-train1", "--for", "running", "--timeout", "200s")
    pods = cluster.api("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    assert len(pods) == 3
    for pod in pods:
        marks = pod["metadata"]["annotations"]
        assert (marks["gpu-fraction"], marks["rowlock.dev/devices"]) == ("0.1", "0")
        assert marks["received-resource-type"] == "Fraction"
        assert marks["runai-gpu-group"] == f"{pod['spec']['nodeName']}-gpu0"

    def held() -> object:
        queue = cluster.api("GET", "/apis/scheduling.run.ai/v2/queues/team-a")
        return queue.get("status", {}).get("allocated", {}).get("nvidia.com/gpu")

    cluster.until(lambda: held() == "300m", "the queue holds 0.3 GPUs")
    projects = {p["name"]: p for p in json.loads(cluster.run("rowlock", "project", "list", "--json"))}
    assert projects["team-a"]["status"]["quotaStatus"]["allocated"]["gpu"] == 0.3
    assert "runai-team-a   1          0.3" in cluster.run("rowlock", "project", "list")
    listed = cluster.run("runai", "list", "jobs").splitlines()[-1]
    assert "0.3 (0.3)" in listed and "3 (0)" in listed
    logs = cluster.run("rowlock", "logs", "dist-train1").splitlines()
    assert sorted(logs) == [f"[rank {i}] card 0 portion 0.1" for i in range(3)]

    # Eight more tenths do not fit beside three: the gang of eight waits whole, and says how many would fit.
    cluster.run(*SUBMIT.format("dist-train2", 7).split(), script)
    text = ""

    def explained() -> bool:
        nonlocal text
        text = cluster.run("rowlock", "explain", "dist-train2")
        return "7 of 8 pods" in text

    cluster.until(explained, "dist-train2 says why it waits")
    assert "asks for: 0.8 GPUs" in text and "queue team-a: holds 0.3 GPUs" in text
    (cluster.data.parent / "stop").touch()
    cluster.run("rowlock", "wait", "dist-train2", "--timeout", "200s")
