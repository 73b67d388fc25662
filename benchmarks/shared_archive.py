"""Many runs in an archive that several servers share: what a server that is new has to read, and what is asked of the storage.

`python -m benchmarks.shared_archive [--runs 10000]`. The storage is a directory, whose answers come at once; so its requests are counted,
each of which takes a storage elsewhere some 20 ms. No API server and no pods: records as the recorder writes them, of two pods each with
their logs, ten runs at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from benchmarks.archive import event, job, pod
from rowlock.archive import database
from rowlock.archive.bucket import Bucket, open_bucket
from rowlock.archive.records import LogRecord, PodRecord, RunRecord
from rowlock.archive.retention import Retention
from rowlock.archive.shared_archive import POLL, SharedArchive

TOGETHER = 10
"""Runs that are written at once."""
LOG_BYTES = 4096
"""A log of about 20 KB, as it is kept."""
REST_S = 15.0


class CountingBucket:
    """A bucket, and how often it was asked for what; bytes that were read and written."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket, self.url = bucket, bucket.url
        self.asked: Counter[str] = Counter()

    def names(self, folder: str) -> dict[str, int]:
        self.asked["list"] += 1
        return self._bucket.names(folder)

    def read(self, name: str) -> bytes:
        content = self._bucket.read(name)
        self.asked["read"] += 1
        self.asked["bytes read"] += len(content)
        return content

    def read_part(self, name: str, start: int, end: int) -> bytes:
        self.asked["read"] += 1
        return self._bucket.read_part(name, start, end)

    def write(self, name: str, content: bytes) -> None:
        self.asked["write"] += 1
        self.asked["bytes written"] += len(content)
        self._bucket.write(name, content)

    def upload(self, name: str, path: Path) -> None:
        self.asked["write"] += 1
        self.asked["bytes written"] += path.stat().st_size
        self._bucket.upload(name, path)

    def remove(self, names: Iterable[str]) -> None:
        names = list(names)
        self.asked["remove"] += len(names)
        self._bucket.remove(names)

    def said(self) -> str:
        """What was asked since the last call."""
        parts = [
            f"{count / 2**20:.1f} MiB {what.removeprefix('bytes ')}"
            if what.startswith("bytes")
            else f"{count} × {what}"
            for what, count in sorted(self.asked.items())
        ]
        self.asked.clear()
        return ", ".join(parts) or "nothing"


def put_run(archive: SharedArchive, number: int, now: float) -> None:
    """One run of two pods that is over."""
    uid = f"{number:08d}-0000-4000-8000-000000000000"
    body = {**job(f"run-{number}"), "metadata": {"name": f"run-{number}", "namespace": "runai-team", "uid": uid}}
    record = RunRecord(
        uid, uid, f"run-{number}", "runai-team", "ns", "team", "PyTorchJob", now, now + 60, None, "Completed"
    )
    events = [event(body, reason) for reason in ("Created", "Scheduled", "Pulled", "Started", "Succeeded")]
    record.body = {"job": body, "events": events, "phases": [[now, "Creating", ""], [now + 60, "Completed", ""]]}
    for rank in ("master-0", "worker-0"):
        pod_uid = f"{uid}-{rank}"
        pod_record = PodRecord(pod_uid, uid, f"run-{number}-{rank}", now, None, pod(body))
        log = LogRecord(pod_uid, "pytorch", 0, uid, "runai-team", pod_record.name, now, 20_000, LOG_BYTES, "")
        archive.put(f"pod/{pod_uid}", database.put_pod(pod_record))
        archive.put(f"log/{pod_uid}", database.put_log(log, os.urandom(LOG_BYTES)))
    archive.put(f"run/{uid}", database.put_run(record))


class LoopDelay:
    """The longest time for which the event loop did nothing else."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.perf_counter() - before - 0.005)


@asynccontextmanager
async def server(directory: Path, bucket: CountingBucket) -> AsyncIterator[SharedArchive]:
    archive = SharedArchive(directory, bucket, Retention())
    tasks = [asyncio.create_task(archive.run())]
    try:
        yield archive
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@contextlib.contextmanager
def told(what: str, bucket: CountingBucket) -> Iterator[None]:
    bucket.asked.clear()
    began, cpu, had = time.perf_counter(), time.process_time(), psutil.Process().memory_info().rss
    yield
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    grown = (psutil.Process().memory_info().rss - had) / 2**20
    print(f"{what:58} {wall:8.2f} s  {cpu:7.2f} s of CPU  {grown:+6.0f} MiB  {bucket.said()}", flush=True)


async def measure(place: Path, storage: Bucket, runs: int) -> None:
    bucket, now, delay = CountingBucket(storage), time.time(), LoopDelay()
    watching = asyncio.create_task(delay.watch())
    async with server(place / "first", bucket) as first:
        await first.lead()
        with told(f"{runs:,} runs are written, {TOGETHER} at a time", bucket):
            for number in range(runs):
                put_run(first, number, now - runs + number)
                if number % TOGETHER == TOGETHER - 1 and not await first.settle(600):
                    raise SystemExit(first.problem)
        async with server(place / "second", bucket) as second:
            with told("a new server has read all", bucket):
                if not await second.settle(600):
                    raise SystemExit(second.problem)
            with told("the newest 50, as `rowlock history` asks", bucket):
                await second.settle(600)
                found = await second.read(database.read_headers, limit=50)
                assert found[0].name == f"run-{runs - 1}", found[0]
            with told("one whole run, as `rowlock show` asks", bucket):
                await second.read(lambda d: list(database.read_runs(d, "WHERE uid = ?", (found[0].uid,))))
            with told(f"a leader and a follower at rest for {REST_S:.0f} s (looks every {POLL:.0f} s)", bucket):
                await asyncio.sleep(REST_S)
            first.follow()
            with told("the follower leads", bucket):
                await second.lead()
                put_run(second, runs, now)
                if not await second.settle(600):
                    raise SystemExit(second.problem)
    watching.cancel()
    print(f"the event loop was held for {1e3 * delay.longest:.0f} ms at most")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "bucket").mkdir()
        asyncio.run(measure(place, open_bucket(f"file://{place / 'bucket'}"), options.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
