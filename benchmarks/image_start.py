"""What a root file system of its own costs at a start: a pod of a built image beside one of the host. `python -m benchmarks.image_start`."""

from __future__ import annotations

import argparse
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
RUNS, ROUNDS, FIRST_STARTS = 25, 3, 9
PAUSE = 0.1
"""Seconds: what is made ahead is made by then, and disturbs no start."""


def build(data: Path, tag: str = IMAGE) -> None:
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Dockerfile").write_text(DOCKERFILE)
        words = [str(BIN / "rowlock"), "build", "--data-dir", str(data), "-t", tag, context]
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


def in_turn(client: Client, label: str, image: str, pause: float = 0.0) -> tuple[list[float], list[float]]:
    """Pods of the host and of the image in turn, so that a neighbour disturbs both; `pause` seconds before each."""
    host, built = [], []
    for i in range(RUNS):
        time.sleep(pause)
        host.append(first_byte(client, f"{label}-host-{i}", "host"))
        time.sleep(pause)
        built.append(first_byte(client, f"{label}-image-{i}", image))
    return host, built


def first_start(client: Client, number: int) -> tuple[float, float]:
    """A pod of the host and one of an image that has just been built, at rest."""
    build(client.data, f"{IMAGE}-{number}")
    first_byte(client, f"f-warm-{number}", "host")
    time.sleep(PAUSE)
    host = first_byte(client, f"f-host-{number}", "host")
    time.sleep(PAUSE)
    return host, first_byte(client, f"f-image-{number}", f"{IMAGE}-{number}")


def difference(rounds: list[tuple[list[float], list[float]]]) -> list[float]:
    return [statistics.median(built) - statistics.median(host) for host, built in rounds]


def figures() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        build(client.data)
        for name, image in (("warm-host", "host"), ("warm-image", IMAGE)):
            first_byte(client, name, image)
        quick = [in_turn(client, f"q{n}", IMAGE) for n in range(ROUNDS)]
        slow = [in_turn(client, f"s{n}", IMAGE, PAUSE) for n in range(ROUNDS)]
        first = [first_start(client, n) for n in range(FIRST_STARTS)]
    hosts, images = ([value for pair in quick for value in pair[which]] for which in (0, 1))
    yield Figure("create a pod of a built image → first log byte", "ms", images, hosts, "a pod of the host, in turn")
    title = f"… what the image's root file system adds (medians of {RUNS}, {ROUNDS} rounds)"
    yield Figure(title, "ms", difference(quick), budget=Budget(3))
    yield Figure(f"… with {PAUSE * 1e3:.0f} ms of rest before each start", "ms", difference(slow), budget=Budget(3))
    yield Figure("… at the first start of an image", "ms", [built - host for host, built in first])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    for measured in figures():
        print(measured.row(), flush=True)
