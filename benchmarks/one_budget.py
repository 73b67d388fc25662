"""One budget alone, in a minute or two: `make bench BENCH=first-byte`. It prints its rows and writes nothing.

`AGAINST=REF` measures an older build of this repository in turn with this one (`older_build.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import archive, budgets, image_start, jobs, memory, older_build, starts, sweeps, trainjobs, watching
from benchmarks.cluster import running
from benchmarks.jobs import Figure


def _ready() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield from budgets.group_ready(client)


def _first_byte() -> Iterator[Figure]:
    with running("--simulated-gpus", "8", "--cpus-per-node", "4000") as client:
        yield jobs.first_log_byte(client)


def _jobs() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield from jobs.finished_jobs(client)


def _thousand() -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        yield jobs.thousand_pods(client)


ROWS: dict[str, Callable[[], Iterator[Figure]]] = {
    "ready": _ready,
    "first-byte": _first_byte,
    "jobs": _jobs,
    "thousand-pods": _thousand,
    "image-start": image_start.figures,
    "memory": memory.figures,
    "sweeps": sweeps.figures,
    "trainjobs": trainjobs.figures,
    "watching": watching.figures,
}
NAMES = (*ROWS, "archive", "starts")
COMPARED = ("ready", "first-byte", "jobs", "thousand-pods", "memory")
"""Budgets that can be measured against an older build: they know a cluster by its API alone."""


def measure(name: str, against: str = "") -> None:
    """Prints the rows of a budget, each beside that of the build of the commit `against`, if one is named."""
    if name == "starts":
        starts.main(against or starts.REF)
        return
    if against and name not in COMPARED:
        raise SystemExit(f"{name} cannot be measured against an older build; these can: {', '.join(COMPARED)}")
    if name == "archive":
        archive.main()
        return
    for figure in older_build.beside(against, ROWS[name]) if against else ROWS[name]():
        print(figure.row(), flush=True)
