"""An MPIJob whose mpirun does not know the workers, as Open MPI 5 without its own variables: all ranks run beside it. No mpirun is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import lent

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/mpijobs"
RANK = "import time\nfor step in range(600): print('step', step, 'loss', 1 / (step + 1), flush=True); time.sleep(0.5)"
MPIRUN = 'OMPI_COMM_WORLD_RANK=0 python -c "$0" & OMPI_COMM_WORLD_RANK=1 python -c "$0" & wait'


def replica(command: list[str], count: int) -> dict[str, Any]:
    container = {"name": "mpi", "image": "rowlock.dev/host", **({"command": command} if command else {})}
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}


def test_workers_without_a_rank_are_told(tmp_path: Path) -> None:
    with lent(tmp_path) as cluster:
        cluster.up("--nodes", "1")
        replicas = {"Launcher": replica(["sh", "-c", MPIRUN, RANK], 1), "Worker": replica([], 2)}
        kind = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "beside"}}
        cluster.api("POST", JOBS, {**kind, "spec": {"slotsPerWorker": 1, "mpiReplicaSpecs": replicas}})

        def why() -> str:
            return cluster.run("rowlock", "why", "beside", code=None).splitlines()[0]

        words = "All 2 ranks run in the launcher's pod, and its 2 workers run none (seen for "

        def events() -> list[str]:
            found = cluster.api("GET", "/api/v1/namespaces/runai-default/events")["items"]
            return [one["message"] for one in found if one["reason"] == "WorkersIdle"]

        cluster.until(lambda: words in why(), why, every=1)
        cluster.until(events, "the event", every=0.2)
        assert words in next(line for line in cluster.run("rowlock", "list").splitlines() if line.startswith("beside"))
        (event,) = events()
        assert words in event
