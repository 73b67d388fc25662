"""What it costs training that its pulse is taken and its stacks are read. `python -m benchmarks watching`.

Two ranks train (gloo, a thread each) while the server runs and stands still in turns: pods do not need it, so a stopped
server (SIGSTOP) is the same training unwatched. That charges everything the server does to watching: an upper bound. Windows
are paired with their neighbours, so a machine that becomes slower in between does not count. Beside it stands what can be
counted exactly: the CPU time of the server and of its py-spy, as a part of what the machine has.

It ends as soon as the interval is narrow, or after `--longest` seconds: on a busy machine it is as wide as it is said to be.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import struct
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import JOBS, Client, job, running
from benchmarks.jobs import Budget, Figure

TRAIN = """
import os, struct, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, steps = dist.get_rank(), 0
file = os.open(f"{sys.argv[1]}/{rank}", os.O_WRONLY | os.O_CREAT)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
x = torch.randn(64, 256)
while not os.path.exists(f"{sys.argv[1]}/end"):
    optimizer.zero_grad()
    ((model(x) - x) ** 2).mean().backward()
    optimizer.step()
    os.pwrite(file, struct.pack("d", time.monotonic()), 8 * steps)
    steps += 1
    if steps % 50 == 0:
        print("step", steps, flush=True)
"""
SETTLE = 0.1
"""Seconds after a switch that count for neither side."""
BATCH, NARROW = 20, 1.5
"""Pairs of windows between two looks at the interval, and its width in per cent that is enough."""
START = 60.0
"""Seconds within which the job has begun to train."""
COST = Budget(2.0, is_share=True)
Windows = list[tuple[bool, float, float]]
"""Of each window: does the server run, from, to."""


def _times(file: Path) -> list[float]:
    """When each step of a rank was done."""
    data = file.read_bytes()
    return list(struct.unpack(f"{len(data) // 8}d", data[: len(data) // 8 * 8]))


def _rate(times: list[float], begin: float, end: float) -> float:
    """Steps a second between two moments."""
    return (bisect_left(times, end) - bisect_left(times, begin)) / (end - begin)


def _cpu(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _windows(client: Client, seconds: float, pairs: int) -> Windows:
    """The server runs and stands still in turns; the first and the last time it stands still."""
    found: Windows = []
    try:
        for number in range(2 * pairs + 1):
            works = number % 2 == 1
            os.kill(client.pid, signal.SIGCONT if works else signal.SIGSTOP)
            begin = time.monotonic()
            time.sleep(seconds)
            found.append((works, begin + SETTLE, time.monotonic()))
    finally:
        os.kill(client.pid, signal.SIGCONT)
    return found


def train(client: Client, seconds: float, longest: float) -> tuple[list[float], list[float], float]:
    """Steps a second of each watched window, and of its unwatched neighbours; the share of all CPUs that watching took."""
    watched, alone = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        client.call("POST", JOBS, job("watched", 1, "python", "-c", TRAIN, name, env={"OMP_NUM_THREADS": "1"}))
        deadline = time.monotonic() + START
        while not ((place / "0").exists() and (place / "0").stat().st_size > 8 * 200):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the job did not begin to train in {START:g} s")
            time.sleep(0.1)
        before, began = _cpu(client.pid), time.monotonic()
        try:
            while time.monotonic() - began < longest - 2 * BATCH * seconds and not _is_narrow(watched, alone):
                windows = _windows(client, seconds, BATCH)
                rates = [_rate(_times(place / "0"), begin, end) for _, begin, end in windows]
                here = [n for n, (works, _, _) in enumerate(windows) if works]
                watched += [rates[n] for n in here]
                alone += [(rates[n - 1] + rates[n + 1]) / 2 for n in here]
            share = (_cpu(client.pid) - before) / (seconds * len(watched) * (os.cpu_count() or 1))
        finally:
            (place / "end").touch()
    return watched, alone, share


def _is_narrow(watched: list[float], alone: list[float]) -> bool:
    low, _, high = loss(watched, alone) if watched else (0.0, 0.0, 2 * NARROW)
    return high - low < NARROW


def loss(watched: list[float], alone: list[float], draws: int = 2000) -> list[float]:
    """Per cent of throughput that watching costs: over all windows, and the ends of a 90 % interval (bootstrap)."""
    dice, pairs = random.Random(0), list(zip(watched, alone, strict=True))

    def cost(some: list[tuple[float, float]]) -> float:
        return 100 * (1 - sum(w for w, _ in some) / sum(a for _, a in some))

    drawn = sorted(cost(dice.choices(pairs, k=len(pairs))) for _ in range(draws))
    return [drawn[int(draws * 0.05)], cost(pairs), drawn[int(draws * 0.95)]]


def figures(seconds: float = 0.5, longest: float = 120.0) -> Iterator[Figure]:
    with running() as client:
        watched, alone, share = train(client, seconds, longest)
    low, middle, high = loss(watched, alone)
    told = f"unwatched: {statistics.mean(alone):.1f} steps/s, watched: {statistics.mean(watched):.1f}"
    is_told = high <= COST.limit or low > COST.limit or high - low < 2 * NARROW
    told += "" if is_told else f"; the machine is too busy to hold it against {COST.limit:g} %"
    counted = f"{len(watched)} × {seconds:g} s (90 % interval)"
    name = f"throughput that watching costs, 2 ranks on {os.cpu_count()} CPUs, {counted}"
    yield Figure(name, "%", [low, middle, high], beside=told, budget=COST if is_told else None)
    yield Figure("CPU of the server and py-spy meanwhile, of all CPUs", "%", [100 * share], budget=COST)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window (default 0.5)")
    parser.add_argument("--longest", type=float, default=120.0, help="seconds of all windows (default 120)")
    asked = parser.parse_args()
    sys.stdout.write("\n".join(figure.row() for figure in figures(asked.seconds, asked.longest)) + "\n")
