"""Checkpoint directories of runs, as who looks at runs is told of them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, NamedTuple

from rowlock.cli.client import ServerClient, StatusError
from rowlock.cli.output import format_duration

_MAX_FILES = 10_000


class CheckpointFiles(NamedTuple):
    """What lies in a directory of checkpoints: how many files (at most 10,000 are counted), and when the newest was written."""

    path: str
    files: int
    newest: float

    def describe(self) -> str:
        if not self.files:
            return f"{self.path} (empty)"
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.path} ({files}, the newest {format_duration(time.time() - self.newest)} old)"


def look_at(server: ServerClient, run: dict[str, Any]) -> CheckpointFiles | None:
    """The checkpoints of a run as `GET /runs/{id}` has it; None where it has no directory on this machine."""
    path = os.path.join(server.directory, "checkpoints", run["checkpointsOf"])
    count, newest = 0, 0.0
    if not os.path.isdir(path):
        return None
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                newest = max(newest, os.lstat(os.path.join(directory, name)).st_mtime)
                count += 1
        if count >= _MAX_FILES:
            break
    return CheckpointFiles(path, count, newest)


def find_directories(server: ServerClient, identity: str) -> list[tuple[str, str]]:
    """The directories of a workload, each with its title: where it runs, and its checkpoints. None where the server keeps no runs."""
    try:
        run = server.get(f"/api/v1/runs/{identity}")
    except StatusError:
        return []
    files, directory = look_at(server, run), run["ran"]["workingDir"]
    return [
        *([("Directory", directory)] if directory else []),
        *([("Checkpoints", files.describe())] if files else []),
    ]
