"""`python -m tests.hostile.soak`: a user's week in an hour, and what it found.

Two parts: a rough one, in which the server and the pod host are killed and the disk is full, and a calm one, at whose end
the server must need no more memory than 1.2 times what it needed at its beginning. Then every job must have come to the
end that it should, everything is deleted, and no process may be left. The seed is printed; the same seed draws the same
actions.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import make
from tests.hostile.soak import rounds
from tests.hostile.soak.bystander import Bystander
from tests.hostile.soak.faults import InjectedFaults
from tests.hostile.soak.measures import GROWTH, PROCESSOR_PER_COMMAND, Watcher, too_slow
from tests.hostile.soak.rounds import CALM, ROUGH, Soak
from tests.hostile.soak.workload import jobs_path

ROUGH_SHARE = 0.6
DISK_SIZE = "256m"
SETTLED = 330.0  # seconds of calm in which all that is kept for a while has filled: 300 s of history, 120 s of Events
JUDGED = 240.0  # seconds of calm beyond, of which the first half is the plateau and the second must not be higher


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SOAK_SECONDS", "3600")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", str(time.time_ns() % 100_000))))
    chosen = parser.parse_args()
    complaints = soak_for(chosen.seconds, chosen.seed)
    print(f"{len(complaints)} things are wrong" if complaints else "nothing is wrong")
    return 1 if complaints else 0


def soak_for(seconds: float, seed: int) -> list[str]:
    """Everything; returns what was wrong, one sentence each."""
    print(f"soak: {seconds:g} s, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rowlock-soak-") as home, small_disk(Path(home) / "disk") as (place, small):
        if not small:
            print("skipped: the disk is not filled (a tmpfs cannot be mounted here; as root it can)")
        faults = InjectedFaults(Path(home) / "faults")
        cluster = make(place / "data", Path(home))
        cluster.env["PYTHONPATH"] = str(faults.python_path)
        watcher, bystander = Watcher(cluster.data), Bystander(Path(home) / "bystander")
        soak = Soak(cluster, watcher, faults, random.Random(seed), uuid.uuid4().hex, small)
        try:
            bystander.start()
            return _play(soak, watcher, bystander, seconds)
        finally:
            bystander.stop()
            watcher.stop() if watcher.is_alive() else None
            subprocess.run(["rowlock", "down", "--yes"], env=cluster.env, capture_output=True, timeout=120)


def _play(soak: Soak, watcher: Watcher, bystander: Bystander, seconds: float) -> list[str]:
    with watcher.excuse():
        soak.start()
    watcher.start()
    rounds.play(soak, seconds * ROUGH_SHARE, ROUGH)
    calm_begin = time.monotonic()
    rounds.play(soak, seconds * (1 - ROUGH_SHARE), CALM)
    calm_end = time.monotonic()
    _check_ends(soak)
    _check_growth(soak, watcher, calm_begin, calm_end)
    _clean(soak)
    watcher.stop()
    _report(soak, watcher)
    stretches = bystander.stretches()
    print(
        f"others waited {max((s for *_, s in stretches), default=1.0):.0f} times as long as they worked, at the worst"
    )
    slow = [*watcher.complaints(stretches), *too_slow(soak.command_seconds, PROCESSOR_PER_COMMAND, stretches)]
    print("".join(f"  WRONG: {text}\n" for text in slow), end="")
    return [*soak.complaints, *slow]


def _check_ends(soak: Soak) -> None:
    """Nothing that was acknowledged is lost, and every job reaches the end that it should."""
    for job in list(soak.jobs.values()):
        seen: set[str] = set()

        def has_ended(job: Any = job, seen: set[str] = seen) -> bool:
            conditions = soak.api("GET", job.path).get("status", {}).get("conditions") or []
            seen.clear()
            seen.update(c["type"] for c in conditions if c["status"] == "True")
            return bool(seen & job.expected)

        try:
            soak.until(has_ended, f"{job.name} ({job.kind}, {job.program}) to be one of {sorted(job.expected)}")
        except rounds.Refused as refusal:
            soak.complain(f"{job.name} was acknowledged and is lost: {refusal}")


def _check_growth(soak: Soak, watcher: Watcher, begin: float, end: float) -> None:
    if end - begin < SETTLED + JUDGED:
        last = watcher.median_memory(begin, end)
        print(f"memory of the server: {last / 2**20:.1f} MiB")
        print(f"skipped: growth is not judged in less than {SETTLED + JUDGED:g} s of calm (SOAK_SECONDS=1500 has them)")
        return
    middle = (begin + SETTLED + end) / 2
    plateau, last = watcher.median_memory(begin + SETTLED, middle), watcher.median_memory(middle, end)
    print(f"memory of the server: {plateau / 2**20:.1f} MiB on its plateau, {last / 2**20:.1f} MiB at last")
    if last > GROWTH * plateau:
        soak.complain(f"the server grew from {plateau / 2**20:.1f} to {last / 2**20:.1f} MiB")


def _clean(soak: Soak) -> None:
    for kind in sorted({job.kind for job in soak.jobs.values()}):
        soak.api("DELETE", jobs_path(kind))
    pods = "/api/v1/namespaces/runai-default/pods"
    soak.until(lambda: not soak.api("GET", pods)["items"], "every pod to be gone")
    if not soak.until(lambda: not soak.processes(), "every program of the jobs to have ended", 30):
        soak.complain("orphans: " + ", ".join(f"{p.pid} {p.name()}" for p in soak.processes()))


def _report_loop(soak: Soak) -> None:
    """What the watchdog of the server's event loop saw; only told, because neighbours of this machine make it long, too."""
    log = (soak.cluster.data / "server.log").read_text(errors="replace")
    for line in [line for line in log.splitlines() if " rowlock.watchdog " in line][-20:]:
        print(f"  {line[:400]}")


def _report(soak: Soak, watcher: Watcher) -> None:
    _report_loop(soak)
    actions = ", ".join(f"{name} {count}" for name, count in sorted(soak.done.items()))
    print(f"{soak.number} jobs; {actions}")
    for name, times in (("answers", watcher.answers), ("commands", [took for _, took, _ in soak.command_seconds])):
        if times:
            slowest = f"median {statistics.median(times) * 1000:.0f} ms, slowest {max(times):.2f} s"
            print(f"{len(times)} {name}: {slowest}")


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[tuple[Path, bool]]:
    """A file system of its own below `place`; False where it cannot be mounted."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE},mode=0700", "rowlock-soak", str(place)], capture_output=True
    )
    try:
        yield place, mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", str(place)], check=False)


if __name__ == "__main__":
    sys.exit(main())
