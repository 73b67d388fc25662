"""What a sweep costs: its runs beside the same runs submitted one by one, and the server's answers while a sweep of 1,000 goes on.

`make bench BENCH=sweeps`, or `python -m benchmarks.sweeps --runs 100 --large 1000`. Both sides run the same program, so many at a time, on
the same server, in turns. The other side has a client for each place, which submits over REST, waits (one long poll) and submits the next.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import psutil

from benchmarks.cluster import Client, running
from benchmarks.jobs import Budget, Figure

PARALLEL = 16
LOOK_S = 0.5
"""Between two questions about a sweep that goes on."""
_SWEEPS, _WORKLOADS = "/api/v1/sweeps", "/api/v1/workloads"
_numbers = count()


def _spec(word: str) -> dict[str, object]:
    return {
        "image": "host", "distributedFramework": "PyTorch", "noWorkers": True,
        "command": ["sh", "-c", f"echo step=1 loss={word}"],
    }  # fmt: skip


def submit_singly(client: Client, runs: int) -> None:
    """So many jobs, `PARALLEL` of them unfinished at a time."""
    left = iter(range(runs))

    def work(own: Client) -> None:
        for number in left:
            body = {"name": f"single-{next(_numbers)}", "projectId": "default", "spec": _spec(str(number))}
            identity = own.call("POST", f"{_WORKLOADS}/distributed", body)["workloadId"]
            while (
                own.call("GET", f"{_WORKLOADS}/{identity}/wait?for=Completed,Failed&timeout=30")["phase"] != "Completed"
            ):
                pass

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(work, [Client(client.data) for _ in range(PARALLEL)]))


def submit_sweep(client: Client, runs: int, questions: Callable[[str], list[str]]) -> dict[str, list[float]]:
    """A sweep of so many runs, until all have completed; the milliseconds of each answer meanwhile, by path."""
    name = f"sweep-{next(_numbers)}"
    body = {
        "name": name, "parameters": {"x": f"1..{runs}"}, "maxParallel": PARALLEL,
        "workload": {"projectId": "default", "spec": _spec("{x}")},
    }  # fmt: skip
    identity = client.call("POST", _SWEEPS, body)["id"]
    took: dict[str, list[float]] = {}
    while True:
        for path in questions(identity):
            began = time.perf_counter()
            client.call("GET", path)
            took.setdefault(path.replace(identity, "ID"), []).append((time.perf_counter() - began) * 1e3)
        (found,) = client.call("GET", f"{_SWEEPS}?project=default&name={name}")["sweeps"]
        if found["phase"] == "Completed":
            if found["runs"]["completed"] != runs:
                raise RuntimeError(f"of {runs} runs these became: {found['runs']}")
            return took
        time.sleep(LOOK_S)


def _cost(client: Client, runs: int, work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the clock, and of the server's CPUs, for each run."""
    server, began = psutil.Process(client.pid), time.perf_counter()
    before = server.cpu_times()
    work()
    spent, after = time.perf_counter() - began, server.cpu_times()
    return spent * 1e3 / runs, (after.user + after.system - before.user - before.system) * 1e3 / runs


def _all_questions(identity: str) -> list[str]:
    return [
        _SWEEPS, f"{_SWEEPS}/{identity}", f"{_SWEEPS}/{identity}?metric=loss", f"{_WORKLOADS}?limit=50&sortBy=name",
    ]  # fmt: skip


def figures(runs: int = 100, large: int = 1_000, rounds: int = 3) -> Iterator[Figure]:
    with running("--cpus-per-node", "4000") as client:
        submit_singly(client, PARALLEL)  # the first jobs of a server are slower
        singles, swept = list[tuple[float, float]](), list[tuple[float, float]]()
        for _ in range(rounds):
            singles.append(_cost(client, runs, lambda: submit_singly(client, runs)))
            swept.append(_cost(client, runs, lambda: submit_sweep(client, runs, lambda _: [])))
        beside = "the same run, submitted singly"
        for index, what in enumerate(("a run of a sweep", "a run of a sweep: the server's CPU")):
            ours, floor = [one[index] for one in swept], [one[index] for one in singles]
            yield Figure(f"{what}, {runs} of them, {PARALLEL} at a time", "ms", ours, floor, beside)
            ratios = [one / other for one, other in zip(ours, floor, strict=True)]
            yield Figure(f"{what}: beside {beside}", "×", ratios, budget=Budget(1.2, is_share=True))
        for path, took in submit_sweep(client, large, _all_questions).items():
            yield Figure(f"GET {path} while a sweep of {large:,} goes on: each answer", "ms", took)
            yield Figure("the slowest of these answers", "ms", [max(took)], budget=Budget(2_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--large", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for figure in figures(options.runs, options.large, options.rounds):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
