"""What a pod costs us while it lives, and what a noisy one costs the others. `python -m benchmarks.pod_life`."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cluster import PODS, Client, pod, running
from benchmarks.jobs import Figure

MOUNT = {"name": "work", "mountPath": "/rowlock-work"}
NOISE = "yes 'a line of output as programs write them, some words' | head -c {size}; echo; echo last"


def wait_until(client: Client, name: str, wanted: str) -> dict[str, Any]:
    """The pod, as soon as it is in that phase. Raises RuntimeError when it ends in another."""
    while True:
        found: dict[str, Any] = client.call("GET", f"{PODS}/{name}")
        phase = found.get("status", {}).get("phase")
        if phase == wanted:
            return found
        if phase in ("Succeeded", "Failed"):
            raise RuntimeError(f"{name} was to be {wanted} and is {phase}: {json.dumps(found['status'])}")
        time.sleep(0.005)


def proportional_memory(pid: int) -> float:
    """Resident KiB with its part of what it shares."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    return 0.0


def memory(client: Client, data: Path, most: int = 1000) -> list[Figure]:
    """Our memory per running pod that has said something: its shim's, with its part of what shims share, and the server's."""
    found: list[Figure] = []
    for kind, spec, count in (
        (f"{most:,} plain ones", {}, most),
        ("100 with a volume", {"volumes": [{"name": "work", "emptyDir": {}}]}, 100),
    ):
        before = client.memory()
        names = [f"m{len(found)}-{i}" for i in range(count)]
        for name in names:
            made = pod(name, "sh", "-c", "echo it runs; exec sleep 600", **spec)
            made["spec"]["containers"][0]["volumeMounts"] = [MOUNT] if spec else []
            client.call("POST", PODS, made)
        for name in names:
            wait_until(client, name, "Running")
        uids = [client.call("GET", f"{PODS}/{name}")["metadata"]["uid"] for name in names]
        shims = [json.loads((data / "pods" / uid / "main" / "start.0").read_text())["shim"] for uid in uids]
        found.append(
            Figure(
                f"memory of a running pod's shim, {kind}", "MiB", [proportional_memory(shim) / 1024 for shim in shims]
            )
        )
        more = (client.memory() - before) / count
        found.append(Figure(f"the server's memory for a running pod, {kind}", "MiB", [more]))
        for name in names:
            client.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    return found


def noisy(client: Client, data: Path, size: int = 2_000_000_000) -> list[Figure]:
    """A pod that prints as fast as it can: how fast that is, what stays on disk, what small pods beside it take."""
    client.call("POST", PODS, pod("noisy", "sh", "-c", NOISE.format(size=size)))
    began, quiet = time.monotonic(), list[float]()
    wait_until(client, "noisy", "Running")
    while client.call("GET", f"{PODS}/noisy")["status"]["phase"] == "Running" and len(quiet) < 50:
        name, begin = f"quiet-{len(quiet)}", time.monotonic()
        client.call("POST", PODS, pod(name, "echo", "hello"))
        wait_until(client, name, "Succeeded")
        quiet.append((time.monotonic() - begin) * 1e3)
    ended = wait_until(client, "noisy", "Succeeded")
    took = time.monotonic() - began
    log = data / "pods" / str(ended["metadata"]["uid"]) / "main" / "log.0"
    alone = []
    for i in range(len(quiet)):
        begin = time.monotonic()
        client.call("POST", PODS, pod(f"alone-{i}", "echo", "hello"))
        wait_until(client, f"alone-{i}", "Succeeded")
        alone.append((time.monotonic() - begin) * 1e3)
    return [
        Figure("output of one noisy pod that is logged", "MB/s", [size / took / 1e6]),
        Figure(f"its log on disk after {size / 1e9:g} GB", "MiB", [log.stat().st_blocks * 512 / 2**20]),
        Figure("a small pod beside it, create → Succeeded", "ms", quiet, alone, "without the noisy one"),
    ]


def followers(client: Client, count: int = 100) -> list[Figure]:
    """Many follow one log: from the line to the last of them that has seen it."""
    client.call("POST", PODS, pod("told", "sh", "-c", "echo begin; sleep 4; date +%s.%N; sleep 2"))
    wait_until(client, "told", "Running")
    late: list[float] = []

    def follow() -> None:
        with client.stream(f"{PODS}/told/log?follow=true") as response:
            lines = iter(response.readline, b"")
            next(lines)
            told = float(next(lines))
            late.append((time.time() - told) * 1e3)

    threads = [threading.Thread(target=follow) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [Figure(f"a line → each of {count} followers", "ms", late)]


def figures() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield from memory(client, client.data)
        yield from noisy(client, client.data)
        yield from followers(client)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    for measured in figures():
        print(measured.row(), flush=True)
