"""TrainJobs and Jobs: a function of two nodes by Kubeflow's SDK, here and in the SDK's own local back end; ranks that run; the rate of
Jobs. `python -m benchmarks.trainjobs`. The SDK has an environment of its own (`make .venv-kubeflow-0.5.0`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cluster import BIN, PODS, Client, running, until_finished
from benchmarks.jobs import Budget, Figure, one_pod_jobs

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
TRAIN_JOBS = f"{TRAINER}/namespaces/runai-default/trainjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/runai-default/jobs"
SDK = Path(__file__).resolve().parents[1] / ".venv-kubeflow-0.5.0" / "bin" / "python"
SESSION = Path(__file__).with_name("trainjobs_session.py")


def train_by_sdk(where: str, runs: int, env: dict[str, str]) -> list[tuple[float, str, int]]:
    """Each run of the function: seconds from `train` until it has ended, its status, and how many ranks spoke."""
    command = [str(SDK), str(SESSION), where, f"torch=={version('torch')}", str(runs)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **env, "PATH": _path()}
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


def _path() -> str:
    return f"{BIN}{os.pathsep}{os.environ['PATH']}"


def sdk_function(client: Client, runs: int = 5) -> Figure:
    """The local back end runs once: it makes an environment and installs torch into it, every time."""
    runtime = client.call("GET", f"{TRAINER}/clustertrainingruntimes/torch-distributed")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    command = ["rowlock", "image", "add", pod["containers"][0]["image"], "--host"]
    env = {"ROWLOCK_DATA_DIR": str(client.data), "KUBECONFIG": str(client.data / "kubeconfig")}
    subprocess.run(command, env={**os.environ, **env, "PATH": _path()}, check=True, stdout=subprocess.DEVNULL)
    ours = train_by_sdk("cluster", runs, env)
    if any((status, ranks) != ("Complete", 2) for _, status, ranks in ours):
        raise RuntimeError(f"two ranks were asked for: {ours}")
    title, seconds = "a function of 2 nodes by Kubeflow's SDK, to its end", [t for t, _, _ in ours]
    try:
        ((took, status, ranks),) = train_by_sdk("local", 1, {})
    except (
        subprocess.CalledProcessError
    ):  # it has told why: without a registry of packages it cannot make its environment
        return Figure(title, "s", seconds, beside="LocalProcessBackend: does not run here")
    if status != "Complete":
        return Figure(title, "s", seconds, beside=f"LocalProcessBackend: says {status} after {took:.0f} s")
    beside = f"LocalProcessBackend: says {status}, {ranks} of 2 ranks ran"
    return Figure(title, "s", seconds, [took], beside, Budget(0.3 * took, is_share=True))


def ranks_run(client: Client, runs: int = 15) -> Figure:
    """Create a TrainJob of two nodes: until both pods are Running; the first one is not counted."""
    took = []
    trainer = {"numNodes": 2, "image": "rowlock.dev/host", "command": ["sleep", "600"]}
    for i in range(runs + 1):
        name = f"ranks-{i}"
        asked = _object("trainer.kubeflow.org/v1alpha1", "TrainJob", name)
        asked["spec"] = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        up: set[str] = set()
        with client.watch(PODS) as events:
            began = time.perf_counter()
            client.call("POST", TRAIN_JOBS, asked)
            for event in events:
                pod = event["object"]
                if pod["metadata"]["name"].startswith(f"{name}-") and pod.get("status", {}).get("phase") == "Running":
                    up.add(pod["metadata"]["name"])
                if len(up) == 2:
                    break
        took.append((time.perf_counter() - began) * 1e3)
        client.call("DELETE", f"{TRAIN_JOBS}/{name}")
    return Figure("create a TrainJob of 2 nodes → both ranks Running", "ms", took[1:], budget=Budget(60))


def rate_of_jobs(client: Client, rounds: int = 2, count: int = 1000) -> Figure:
    """Rounds of so many Jobs of one pod, each beside as many PyTorchJobs of one. They take turns in being the first of a round: the
    second has the other's finished objects beside it."""
    ours, floors = [], []
    for i in range(rounds):
        for is_floor in (True, False) if i % 2 == 0 else (False, True):
            if is_floor:
                floors.append(one_pod_jobs(client, count, f"pytorch-{i}"))
            else:
                ours.append(_one_pod_batch_jobs(client, count, f"batch-{i}"))
    budget = Budget(0.8 * statistics.median(floors), at_least=True, is_share=True)
    title = f"{count:,} Jobs of one pod run to the end"
    return Figure(title, "jobs/s", ours, floors, f"{count:,} PyTorchJobs of one pod", budget)


def _one_pod_batch_jobs(client: Client, count: int, prefix: str) -> float:
    container = {"name": "main", "image": "host", "command": ["true"]}
    names = {f"{prefix}-{i}" for i in range(count)}
    with client.watch(BATCH_JOBS) as events:
        began = time.monotonic()
        for name in sorted(names):
            asked = _object("batch/v1", "Job", name)
            asked["spec"] = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
            client.call("POST", BATCH_JOBS, asked)
        return count / (until_finished(events, names, "Complete") - began)


def _object(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def figures() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield ranks_run(client)
        yield rate_of_jobs(client)
    if SDK.exists():
        with running("--cpus-per-node", "4000") as client:
            yield sdk_function(client)
    else:
        print("Kubeflow's SDK is not installed (make .venv-kubeflow-0.5.0): not measured", file=sys.stderr)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    print("| what | rowlock | floor or peer in the same run | ratio | budget for the median |", flush=True)
    for measured in figures():
        print(measured.row(), flush=True)
