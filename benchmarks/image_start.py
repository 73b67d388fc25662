"""What a root file system of its own costs at a start: a pod of a built image beside one of the host. `python -m benchmarks.image_start`."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import BIN, PODS, Client, pod, running
from benchmarks.jobs import Budget, Figure

IMAGE = "bench/image:1"
DOCKERFILE = "FROM python\nWORKDIR /app\nCOPY Dockerfile .\nRUN mkdir -p /made/by/run\nENV A=1\n"
RUNS, ROUNDS = 25, 3


def build(data: Path) -> None:
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Dockerfile").write_text(DOCKERFILE)
        words = [str(BIN / "rowlock"), "build", "--data-dir", str(data), "-t", IMAGE, context]
        env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=env)


def first_byte(client: Client, name: str, image: str) -> float:
    """Milliseconds from create to the first byte of the log."""
    follower, made = client.connection(), pod(name, "echo", "hello")
    made["spec"]["containers"][0]["image"] = image
    began = time.perf_counter()
    client.call("POST", PODS, made)
    client.follow(follower, f"{PODS}/{name}/log")
    taken = (time.perf_counter() - began) * 1e3
    follower.close()
    client.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    return taken


def figures() -> Iterator[Figure]:
    host: list[float] = []
    built: list[float] = []
    more: list[float] = []
    with running("--cpus-per-node", "4000") as client:
        build(client.data)
        for name, image in (("warm-host", "host"), ("warm-image", IMAGE)):
            first_byte(client, name, image)
        for number in range(ROUNDS):
            ours, theirs = [], []
            for i in range(RUNS):  # in turn, so that a neighbour disturbs both
                theirs.append(first_byte(client, f"host-{number}-{i}", "host"))
                ours.append(first_byte(client, f"image-{number}-{i}", IMAGE))
            more.append(statistics.median(ours) - statistics.median(theirs))
            host, built = host + theirs, built + ours
    yield Figure("create a pod of a built image → first log byte", "ms", built, host, "a pod of the host, in turn")
    title = f"… what the image's root file system adds (medians of {RUNS}, {ROUNDS} rounds)"
    yield Figure(title, "ms", more, budget=Budget(3))


if __name__ == "__main__":
    for measured in figures():
        print(measured.row(), flush=True)
