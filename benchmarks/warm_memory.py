"""What huge pages cost and save in warm parents: memory of the parent and of its ranks, and the time of a fork, with and
without them. `python -m benchmarks.warm_memory [RANKS]`.

A parent imports what a warm parent imports and forks ranks through a shim each, as warm starts do; each rank trains a small
model for a few steps and waits. Memory is what the kernel says (`smaps_rollup`): Pss counts what is shared once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from rowlock.kubelet.warm.warm_parents import PRELOADED_MODULES

RANKS, ROUNDS = 8, 3
PARENT = """
import gc, os, sys, time
from rowlock.kubelet.warm import huge_pages, warm_parent

def rollup(pid):
    rows = (line.split() for line in open(f"/proc/{pid}/smaps_rollup").read().splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) for row in rows}

def train():
    import torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()

def print_memory(what, pids):
    seen = [rollup(pid) for pid in pids]
    total = {name: sum(row[name] for row in seen) for name in ("Rss", "Pss", "Private_Dirty", "AnonHugePages")}
    tables = sum(int(line.split()[1]) for pid in pids for line in open(f"/proc/{pid}/status") if line.startswith("VmPTE"))
    print(what, *(total[name] for name in total), tables, flush=True)

why = warm_parent.import_modules(sys.argv[1].split(","))
assert not why, why
gc.freeze(); gc.disable()
print_memory("before", [os.getpid()])
if sys.argv[2] == "huge":
    huge_pages.collapse_memory()
print_memory("parent", [os.getpid()])
shims, ranks, forks = [], [], []
for _ in range(int(sys.argv[3])):
    reading, writing = os.pipe()
    began = time.perf_counter()
    shim = os.fork()
    forks.append(time.perf_counter() - began)
    if shim == 0:
        rank = os.fork()
        if rank == 0:
            gc.enable()
            train()
            os.write(writing, b"%d" % os.getpid())
            time.sleep(600)
        os.waitpid(rank, 0)
        os._exit(0)
    ranks.append(int(os.read(reading, 16)))
    shims.append(shim)
print_memory("ranks", ranks)
print_memory("shims", shims)
print_memory("all", [os.getpid(), *shims, *ranks])
print("fork", sorted(forks)[len(forks) // 2] * 1e6, flush=True)
for pid in ranks:
    os.kill(pid, 9)
"""


def measure(how: str, ranks: int) -> dict[str, list[float]]:
    """What the parent prints: name → RSS, Pss, private, huge and page tables, in KiB; `fork` in microseconds."""
    words = [sys.executable, "-c", PARENT, ",".join(PRELOADED_MODULES), how, str(ranks)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(words, check=True, capture_output=True, text=True, env=env, timeout=300).stdout
    return {name: [float(value) for value in values] for name, *values in map(str.split, said.splitlines())}


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else RANKS
    began = time.monotonic()
    rows = {how: [measure(how, ranks) for _ in range(ROUNDS)] for how in ("small", "huge")}
    print(f"medians of {ROUNDS}, {ranks} ranks, MiB; {time.monotonic() - began:.0f} s")
    print("| | pages | Rss | Pss | private | in huge pages | page tables |\n|---|---|--:|--:|--:|--:|--:|")
    for name in ("before", "parent", "ranks", "shims", "all"):
        for how, rounds in rows.items():
            columns = zip(*(one[name] for one in rounds), strict=True)
            print(f"| {name} | {how} | {' | '.join(f'{statistics.median(c) / 1024:.1f}' for c in columns)} |")
    for how, rounds in rows.items():
        print(f"fork, {how}: {statistics.median(one['fork'][0] for one in rounds) / 1e3:.2f} ms")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    main()
