"""`kill -9` of the server while Jobs count their pods: no end is lost and none is counted twice."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from tests.end_to_end.cluster import Cluster

JOBS = "/apis/batch/v1/namespaces/runai-default/jobs"
KILLS = 12


def batch_job(name: str, script: str, **spec: object) -> dict[str, object]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}, **spec}}


@pytest.mark.timeout(900)
def test_each_end_is_counted_once(cluster: Cluster) -> None:
    cluster.up()
    indexed = {"completionMode": "Indexed", "completions": 12, "parallelism": 3}
    cluster.api("POST", JOBS, batch_job("indexed", "sleep 0.2", **indexed))
    cluster.api("POST", JOBS, batch_job("plain", "sleep 0.2", completions=12, parallelism=3))
    never = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [7]}}]}
    cluster.api("POST", JOBS, batch_job("fails", "sleep 1; exit 7", podFailurePolicy=never))
    chance = random.Random(45)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.4))  # any moment: that is the point
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up()

    def ends() -> dict[str, set[str]]:
        jobs = cluster.api("GET", JOBS)["items"]
        return {
            j["metadata"]["name"]: {c["type"] for c in j["status"].get("conditions", ()) if c["status"] == "True"}
            for j in jobs
        }

    cluster.until(lambda: all(found & {"Complete", "Failed"} for found in ends().values()), lambda: str(ends()), 180)
    status = {j["metadata"]["name"]: j["status"] for j in cluster.api("GET", JOBS)["items"]}
    assert status["indexed"]["completedIndexes"] == "0-11"
    for name in ("indexed", "plain"):
        assert (status[name]["succeeded"], status[name].get("failed", 0)) == (12, 0), status[name]
        assert status[name]["uncountedTerminatedPods"] == {}
    assert status["fails"]["failed"] == 1 and "Failed" in ends()["fails"]
    pods = cluster.api("GET", "/api/v1/namespaces/runai-default/pods")["items"]
    assert len(pods) == 25 and not any(p["metadata"].get("finalizers") for p in pods)
    cluster.api("DELETE", f"{JOBS}?propagationPolicy=Background")
    cluster.until(lambda: not cluster.api("GET", "/api/v1/namespaces/runai-default/pods")["items"], "the pods to go")
