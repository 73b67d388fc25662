"""Records of jobs that outlive pods, jobs and servers: one file per job in a directory, one JSON record per line."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from rowlock.kubelet.files import untrusted

MAX_JOBS = 1000
"""Jobs whose records are kept."""
_MAX_BYTES = 64 << 20
T = TypeVar("T")


class JobRecords(Generic[T]):
    """Records of one kind; `parse` reads one from its JSON object and raises ValueError, TypeError or AttributeError."""

    def __init__(self, directory: Path, parse: Callable[[dict[str, Any]], T]) -> None:
        self._directory = directory
        self._parse = parse
        self._by_job: dict[str, list[T]] = {}
        with contextlib.suppress(FileNotFoundError):
            self._on_disk = {entry.removesuffix(".jsonl") for entry in os.listdir(directory)}
            return
        self._on_disk = set()

    def of(self, job: str) -> list[T]:
        """The records of a job (its uid), in the order in which they were added."""
        if job not in self._by_job:
            if job not in self._on_disk:
                return []
            self._by_job[job] = self._read(job)
        return self._by_job[job]

    def _read(self, job: str) -> list[T]:
        records = []
        with contextlib.suppress(OSError):
            for line in untrusted.read_file(str(self._file(job)), _MAX_BYTES).splitlines():
                # the last line may have been cut by a crash
                with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
                    records.append(self._parse(json.loads(line)))
        return records

    def add(self, job: str, record: T, fields: dict[str, Any]) -> None:
        """Store a record; `fields` is its JSON object."""
        records = self.of(job)
        self._by_job[job] = [*records, record]
        self._on_disk.add(job)
        self._directory.mkdir(exist_ok=True, mode=0o700)
        with self._file(job).open("a") as file:
            file.write(json.dumps(fields) + "\n")

    def prune_old_jobs(self) -> None:
        """Keeps the files of the newest jobs."""
        with contextlib.suppress(FileNotFoundError):
            files = sorted(os.scandir(self._directory), key=lambda e: e.stat().st_mtime, reverse=True)
            for entry in files[MAX_JOBS:]:
                os.unlink(entry.path)
                job = entry.name.removesuffix(".jsonl")
                self._by_job.pop(job, None)
                self._on_disk.discard(job)

    def _file(self, job: str) -> Path:
        return self._directory / f"{job}.jsonl"
