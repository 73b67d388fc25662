"""A hundred thousand simulated histories: `make soak` (SEEDS=100000, FROM=0, JOBS=all processors).

Each seed is played twice, once calm and once contested, with PyTorchJobs; each fifth once more with Jobs, JobSets and TrainJobs. Progress goes to stderr; a failure is printed as soon as it is
known, with the line that tells its story, and does not end the run. Exit 1 when there was one.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from tests.simulation.layers import build as layers
from tests.simulation.test_seeds import contested, failures

CHUNK = 50
TELLS, TELLS_LAYERS = "tests.simulation.test_seeds", "tests.simulation.layers.test_layers"


def _left(done: int, wanted: int, began: float) -> str:
    seconds = (time.monotonic() - began) * (wanted - done) / max(done, 1)
    return f"{seconds / 3600:.1f} h left" if seconds > 5400 else f"{seconds / 60:.0f} min left"


def _tell(text: str) -> None:
    sys.stderr.write(f"\r\033[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    first, wanted = int(os.environ.get("FROM", "0")), int(os.environ.get("SEEDS", "100000"))
    began, done, found, told = time.monotonic(), 0, 0, -1
    with ProcessPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count() or 1)) as pool:
        chunks: dict[Future[list[str]], tuple[int, str]] = {}
        for start in range(first, first + wanted, CHUNK):
            seeds = range(start, min(start + CHUNK, first + wanted))
            chunks[pool.submit(failures, seeds)] = len(seeds), TELLS
            chunks[pool.submit(failures, seeds, contested)] = len(seeds), TELLS
            if start % (5 * CHUNK) == 0:
                chunks[pool.submit(failures, seeds, layers.build, layers.play)] = 0, TELLS_LAYERS
        for future in as_completed(chunks):
            played, tells = chunks[future]
            for line in future.result():
                found += 1
                print(f"{line}\n    python -m {tells} {line.split()[1][:-1]} [contested]", flush=True)
            done += played
            percent = done * 50 // wanted  # every seed is played twice
            if percent != told or sys.stderr.isatty():
                told = percent
                _tell(f"{done:,} of {2 * wanted:,} histories, {found} failed, {_left(done, 2 * wanted, began)}")
    minutes = (time.monotonic() - began) / 60
    sys.stderr.write("\n" if sys.stderr.isatty() else "")
    print(f"{done:,} histories of seeds {first:,} to {first + wanted - 1:,}, {found} failed, {minutes:.1f} minutes")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
