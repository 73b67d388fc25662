"""More promises: a killed rank, warm starts, the price of training here, ten thousand workloads. `python -m benchmarks.budgets`."""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks.cluster import BIN, JOBS, PODS, Client, job, pod, running, until_finished
from benchmarks.jobs import Budget, Figure, _port

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "distributed_training_pytorch" / "distributed.py"
EPOCHS = 14


def rank_restarted(client: Client, runs: int = 5) -> Figure:
    """`kill -9` of a container's program: until the next one has begun, by the time it writes down."""
    took = []
    for i in range(runs):
        mark = f"date +%s.%N; sleep 10{i:02d}"
        asked = pod(f"killed-{i}", "sh", "-c", mark)
        asked["spec"]["restartPolicy"] = "OnFailure"
        with client.watch(PODS) as events:
            client.call("POST", PODS, asked)
            killed = 0.0
            for event in events:
                if event["object"]["metadata"]["name"] != f"killed-{i}":
                    continue
                known = (event["object"].get("status", {}).get("containerStatuses") or [{}])[0]
                if "running" not in known.get("state", {}):
                    continue
                if known["restartCount"]:
                    break
                if not killed:
                    (victim,) = (p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ()))
                    killed = time.time()
                    os.kill(victim.pid, signal.SIGKILL)
        with client.stream(f"{PODS}/killed-{i}/log?follow=true") as log:  # it may not have written yet
            took.append((float(log.readline()) - killed) * 1e3)
        client.call("DELETE", f"{PODS}/killed-{i}?gracePeriodSeconds=0")
    return Figure("a rank killed with -9 → its next run has begun", "ms", took)


def _submit(data: Path, names: list[str]) -> None:
    client, asked = Client(data), job("x", 0, "true")
    asked["spec"]["runPolicy"] = {"suspend": True}
    for each in names:
        asked["metadata"]["name"] = each
        client.call("POST", JOBS, asked)


def workloads_listed(client: Client, count: int = 10_000) -> list[Figure]:
    """One page of 50 of ten thousand (suspended) workloads over REST: p99 of 100 requests each, and the server's CPU time of one
    of them, which says more on a machine that others use, too. The same page again and again, and all pages one after the other."""
    names = [f"listed-{i:05d}" for i in range(count)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: _submit(client.data, part), [names[i::4] for i in range(4)]))
    found = []
    queries = {
        "a page that nobody has looked at": "&offset={fresh}",
        "as they come": "",
        "sorted by name": "&sortBy=name&offset=5000",
        "filtered by name and sorted": "&filterBy=name%3D%40listed-09&sortBy=createdAt&sortOrder=desc",
    }
    for what, query in queries.items():
        took, server = [], psutil.Process(client.pid)
        before = server.cpu_times()
        for n in range(101):
            began = time.perf_counter()
            page = client.call("GET", f"/api/v1/workloads?limit=50{query.format(fresh=50 * n)}")
            took.append((time.perf_counter() - began) * 1e3)
            assert len(page["workloads"]) == 50
        p99 = statistics.quantiles(took[1:], n=100)[98]
        found.append(Figure(f"a page of 50 of 10,000 workloads, {what}: p99", "ms", [p99]))
        after = server.cpu_times()
        used = (after.user + after.system - before.user - before.system) * 1e3 / len(took)
        found.append(Figure(f"a page of 50 of 10,000 workloads, {what}: CPU of the server", "ms", [used]))
    return found


def _epochs(log: str) -> list[float]:
    """Seconds per epoch of rank 0; the first ones warm up."""
    return [float(s) for s in re.findall(r"\[RANK 0\] Epoch \d+/\d+ .* ([0-9.]+) s", log)][3:]


def _bare(arguments: list[str]) -> list[float]:
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _port(), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *arguments], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    return _epochs(said[0])


def throughput(client: Client, runs: int = 3) -> Figure:
    """Seconds per epoch of the seeds' network on two ranks; a ratio of 1 means that training here costs nothing."""
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        for i in range(runs):
            arguments = [str(EXAMPLE), "--batch_size", "8", str(EPOCHS), "1000", "--snapshot", f"{place}/none-{i}.pt"]
            with client.watch(JOBS) as events:
                client.call("POST", JOBS, job(f"train-{i}", 1, "python", *arguments, env={"OMP_NUM_THREADS": "1"}))
                until_finished(events, {f"train-{i}"})
            with client.stream(f"{PODS}/train-{i}-master-0/log") as log:
                ours.append(min(_epochs(log.read().decode())))
            bare.append(min(_bare(arguments)))
    return Figure("fastest epoch of the seeds' DDP program, 2 ranks", "s", ours, bare, "two bare processes")


READY = """
import sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
sys.stdout.write(f"READY {time.time()}\\n")  # one write: two ranks share a pipe
sys.stdout.flush()
dist.destroy_process_group()
"""


def group_ready(client: Client, runs: int = 7) -> list[Figure]:
    """Submit a two-rank torch script: until its process group is up, warm (a parent has imported torch) and with torchrun."""
    ours: list[float] = []
    agent: list[float] = []
    cold = 0.0
    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "ready.py"
        script.write_text(READY)
        for _ in range(3 * runs):
            if len(ours) == runs:
                break
            name = f"ready-{time.time_ns()}"
            with client.watch(JOBS) as events:
                began = time.time()
                client.call("POST", JOBS, job(name, 1, "python", str(script), env={"OMP_NUM_THREADS": "1"}))
                until_finished(events, {name})
            with client.stream(f"{PODS}/{name}-worker-0/log") as log:
                took = float(re.findall(r"READY ([0-9.]+)", log.read().decode())[0]) - began
            said = client.call(
                "GET", f"/api/v1/namespaces/runai-default/events?fieldSelector=involvedObject.name={name}-worker-0"
            )
            if any("(warm: " in event["message"] for event in said["items"]):
                ours.append(took)
                agent.append(torchrun_ready(script))
            else:
                cold = cold or took
    if len(ours) < runs:
        raise RuntimeError(f"only {len(ours)} of {3 * runs} jobs started warm")
    return [
        Figure(
            "submit a 2-rank torch script → process group ready, warm start",
            "s",
            ours,
            agent,
            "torchrun, 1 agent × 2, which starts cold: it has no warm start",
            Budget(0.10),
        ),
        Figure("… the first time, cold (torch and this script not read from disk before)", "s", [cold]),
    ]


def torchrun_ready(script: Path) -> float:
    """Seconds until the group of torchrun's two ranks is ready."""
    began = time.time()
    words = [
        str(BIN / "torchrun"),
        "--nproc-per-node=2",
        "--master-addr=127.0.0.1",
        f"--master-port={_port()}",
        str(script),
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    stamps = [float(stamp) for stamp in re.findall(r"READY ([0-9.]+)", done.stdout)]
    if len(stamps) != 2:
        raise RuntimeError(f"torchrun's ranks said {done.stdout!r}")
    return max(stamps) - began


def figures() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield rank_restarted(client)
        yield from group_ready(client)
        yield throughput(client)
    with running("--without", "kubelet") as client:
        yield from workloads_listed(client)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    for measured in figures():
        print(measured.row(), flush=True)
