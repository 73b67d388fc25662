"""`kill -9` of the server at any moment, again and again under load: nothing is lost.

Each job writes numbered lines and ends; the server is killed and started in between. Afterwards every object is there,
every log is whole, every exit code is known, and no process is left.
"""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest
from tests.end_to_end.cluster import Cluster

KILLS = 50
JOBS = 6
LINES = 120
SCRIPT = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit $CODE"


def submit(cluster: Cluster, name: str, code: int) -> None:
    container = {
        "name": "pytorch",
        "image": "host",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "CODE", "value": str(code)}],
    }
    replica = {
        "replicas": 1,
        "restartPolicy": "Never" if code else "OnFailure",
        "template": {"spec": {"containers": [container]}},
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }
    cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", job)


def marked_processes(cluster: Cluster) -> list[psutil.Process]:
    """Every process that runs for this cluster's pods."""
    found = []
    for process in psutil.process_iter():
        try:
            if SCRIPT in process.cmdline():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.mark.timeout(1200)  # a start takes five seconds on a busy machine
def test_fifty_kills_lose_nothing(cluster: Cluster) -> None:
    cluster.up()
    chance = random.Random(11)
    names = [f"job-{i}" for i in range(JOBS)]
    kills = 0
    while kills < KILLS:
        if kills % 8 == 0 and kills // 8 < JOBS:
            i = kills // 8
            submit(cluster, names[i], code=7 if i == 2 else 0)
        time.sleep(chance.uniform(0.0, 0.25))  # any moment: that is the point
        os.kill(cluster.pid, signal.SIGKILL)
        kills += 1
        cluster.up()
    for i, name in enumerate(names):
        wanted = "failed" if i == 2 else "completed"
        cluster.run("rowlock", "wait", name, f"--for={wanted}", "--timeout", "200s")
    for i, name in enumerate(names):
        for pod in (f"{name}-master-0", f"{name}-worker-0"):
            lines = cluster.run("rowlock", "logs", name, "--pod", pod).splitlines()
            if i != 2:  # the failed job's other rank is stopped or runs on, as its clean-up policy says
                assert lines == [f"line {n}" for n in range(LINES)], f"{pod}: {len(lines)} lines"
    cluster.run("rowlock", "delete", *names)
    cluster.until(lambda: not marked_processes(cluster), "no process left of any job")
