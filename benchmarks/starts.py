"""What a start costs, beside the build of a commit and beside the floor, in turn: `make bench BENCH=starts`.

Each row is a ratio to the older build in the same rounds, with the same of the floor: what the kernel, a bare process or torchrun takes.
The builds take turns, and the one that begins changes. Quiet machines only: a figure of seconds is worth nothing beside other work.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks import bare_pods, budgets, jobs, pod_life
from benchmarks.cluster import JOBS, PODS, Client, job, pod, running, until_finished
from benchmarks.older_build import REPO, compile_sources, unpack, use_build

REF = "35f4c23e"
"""The build that the targets are ratios to."""
ROUNDS = 5
_SETTLE = 5.0
"""Seconds between `rowlock up` and the first torch job."""


@dataclass
class Row:
    """One line of the table; `target` is a ratio to the older build (to torchrun, a count) that the median must reach."""

    work: str
    target: float
    at_least: bool = False
    unit: str = "× the older build"
    values: dict[str, list[float]] = field(default_factory=dict)
    """Build, or "floor" → one value a round."""

    def add(self, who: str, value: float) -> None:
        self.values.setdefault(who, []).append(value)

    def _median(self, who: str) -> float | None:
        return statistics.median(self.values[who]) if self.values.get(who) else None

    def text(self, older: str) -> str:
        ours, theirs, floor = self._median("ours"), self._median(older), self._median("floor")
        assert ours is not None and theirs is not None
        base = {"× torchrun": floor, "writes": 1.0}.get(self.unit, theirs) or 1.0
        reached = ours / base
        is_met = reached >= self.target if self.at_least else reached <= self.target
        beside = "–" if floor is None else f"{floor / base:.2f}"
        sign = "≥" if self.at_least else "≤"
        return (
            f"| {self.work} | {reached:.2f} {self.unit} | {theirs / base:.2f} | {beside} | {sign} {self.target:g} |"
            f" {'met' if is_met else 'MISSED'} | {ours:.4g}, {theirs:.4g} |"
        )


ROWS = {
    "jobs": Row("one-pod jobs per second, submit → end", 2.0, at_least=True),
    "thousand": Row("1,000-pod job, create → all Running", 0.5),
    "cpu": Row("server's CPU for a job of 2 ranks, submit → end", 0.5),
    "writes": Row("writes to the store for a pod's life", 3.0, unit="writes"),
    "torch": Row(f"submit → process group ready, first torch job, {_SETTLE:g} s after `up`", 0.08, unit="× torchrun"),
    "up": Row("`rowlock up -d` → usable node", 0.6),
    "byte": Row("create → first log byte", 0.8),
    "memory": Row("memory of a running pod beside its program", 0.7),
}
HEAD = (
    "| work | this build | older build | floor | target | | values: this build, older |\n|---|---|---|---|---|---|---|"
)


def _cpu_of_two_ranks(client: Client, prefix: str, count: int = 100) -> float:
    """Milliseconds of the server's CPU for each job."""
    server, names = psutil.Process(client.pid), {f"{prefix}-{i}" for i in range(count)}
    before = server.cpu_times()
    with client.watch(JOBS) as events:
        for name in sorted(names):
            client.call("POST", JOBS, job(name, 1, "true"))
        until_finished(events, names)
    after = server.cpu_times()
    return (after.user + after.system - before.user - before.system) * 1e3 / count


def _writes_of_a_pod(client: Client, name: str) -> float:
    """Versions of a pod from its create to its end; it runs long enough to be seen running."""
    with client.watch(PODS) as events:
        client.call("POST", PODS, pod(name, "sleep", "0.5"))
        for count, event in enumerate((e for e in events if e["object"]["metadata"]["name"] == name), 1):
            if event["object"].get("status", {}).get("phase") == "Succeeded":
                return count
    raise RuntimeError("the watch ended early")


def _memory_of_a_pod(client: Client, prefix: str, count: int = 100) -> float:
    """MiB of a shim, with its part of what shims share, and of the server, for each running pod."""
    before, names = client.memory(), [f"{prefix}-{i}" for i in range(count)]
    for name in names:
        client.call("POST", PODS, pod(name, "sh", "-c", "echo it runs; exec sleep 600"))
    uids = [pod_life.wait_until(client, name, "Running")["metadata"]["uid"] for name in names]
    starts = [client.data / "pods" / uid / "main" / "start.0" for uid in uids]
    shims = statistics.mean(pod_life.proportional_memory(json.loads(s.read_text())["shim"]) for s in starts) / 1024
    more = (client.memory() - before) / count
    for name in names:
        client.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    return shims + more


def _first_torch_job(data: Path, script: Path) -> float:
    """Seconds until the group of the first torch job after `up` is ready, in a data directory that has run one before."""
    begun = 0.0
    for is_first in (True, False):
        with running("--cpus-per-node", "4000", data=data) as client:
            if not is_first:
                time.sleep(_SETTLE)
            name = f"ready-{time.time_ns()}"
            with client.watch(JOBS) as events:
                begun = time.time()
                client.call("POST", JOBS, job(name, 1, "python", str(script), env={"OMP_NUM_THREADS": "1"}))
                until_finished(events, {name})
            with client.stream(f"{PODS}/{name}-worker-0/log") as log:
                found = re.findall(r"READY ([0-9.]+)", log.read().decode())
    return float(found[0]) - begun


@contextmanager
def _timed_cluster() -> Iterator[tuple[float, Client]]:
    began = time.monotonic()
    with running("--cpus-per-node", "4000") as client:
        yield time.monotonic() - began, client


def _measure(who: str, number: int, script: Path) -> None:
    """One round of one build."""
    with _timed_cluster() as (took, client):
        ROWS["up"].add(who, took)
        ROWS["byte"].add(who, statistics.median(jobs.first_log_byte(client).values))
        ROWS["jobs"].add(who, jobs.one_pod_jobs(client, 250, f"small-{number}"))
        ROWS["cpu"].add(who, _cpu_of_two_ranks(client, f"two-{number}"))
        ROWS["writes"].add(who, _writes_of_a_pod(client, f"life-{number}"))
        ROWS["memory"].add(who, _memory_of_a_pod(client, f"memory-{number}"))
    with running("--cpus-per-node", "4000") as client:
        ROWS["thousand"].add(who, jobs.thousand_pods(client, with_floor=False).values[0])
    with tempfile.TemporaryDirectory(prefix="rowlock-bench-", ignore_cleanup_errors=True) as data:
        ROWS["torch"].add(who, _first_torch_job(Path(data), script))


def _measure_floor(script: Path) -> None:
    ROWS["jobs"].add("floor", bare_pods.run_to_the_end(250))
    ROWS["thousand"].add("floor", bare_pods.start_all(1000))
    ROWS["byte"].add("floor", jobs.bare_first_byte() * 1e3)
    ROWS["torch"].add("floor", budgets.torchrun_ready(script))


def main(ref: str = REF, rounds: int = ROUNDS, say: Callable[[str], object] = print) -> None:
    """Measures and prints the table."""
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rowlock-starts-") as place:
        unpack(ref, Path(place))
        compile_sources(REPO / "src")
        script = Path(place) / "ready.py"
        script.write_text(budgets.READY)
        for number in range(rounds):
            for who in ("ours", ref) if number % 2 == 0 else (ref, "ours"):
                print(f"… round {number + 1} of {rounds}, {who}", file=sys.stderr, flush=True)
                with use_build(REPO / "src" if who == "ours" else Path(place) / "src"):
                    _measure(who, number, script)
            _measure_floor(script)
    say(
        f"load before the start {busy:.1f} on {os.cpu_count()} CPUs; older build {ref}; medians of {rounds} rounds in turn"
    )
    say(HEAD)
    for row in ROWS.values():
        say(row.text(ref))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    main()
