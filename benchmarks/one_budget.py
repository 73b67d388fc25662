"""One budget alone, in a minute or two: `make bench BENCH=first-byte`. It prints its rows and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import archive, budgets, image_start, jobs, trainjobs, watching
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
    "trainjobs": trainjobs.figures,
    "watching": watching.figures,
}
NAMES = (*ROWS, "archive")


def measure(name: str) -> None:
    if name == "archive":
        archive.main()
        return
    for figure in ROWS[name]():
        print(figure.row(), flush=True)
