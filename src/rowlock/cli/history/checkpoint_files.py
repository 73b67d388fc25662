"""Information about the checkpoint directory of a run, for messages."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from rowlock.cli.client import ServerClient, StatusError
from rowlock.cli.output import format_duration

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

_MAX_FILES = 10_000


class CheckpointFiles(NamedTuple):
    """The content of a checkpoint directory: the number of files (counted up to 10,000), and when the newest was written."""

    path: str
    files: int
    newest: float

    def describe(self) -> str:
        if not self.files:
            return f"{self.path} (empty)"
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.path} ({files}, the newest {format_duration(time.time() - self.newest)} old)"


def look_at(server: ServerClient, run: Run) -> CheckpointFiles | None:
    """The checkpoints of a run that `GET /runs/{id}` returned; None when its directory is not on this machine."""
    path = _directory_of(server, run)
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


def _directory_of(server: ServerClient, run: Run) -> str:
    return os.path.join(server.directory, "checkpoints", run["checkpointsOf"])


def find_directories(server: ServerClient, identity: str) -> list[tuple[str, str]]:
    """(title, directory) of a workload's working directory and of its checkpoints; [] when the server keeps no archive."""
    try:
        run = server.get(f"/api/v1/runs/{identity}")
    except StatusError:
        return []
    files, directory, path = look_at(server, run), run["ran"]["workingDir"], _directory_of(server, run)
    are_here = os.path.isdir(os.path.dirname(path))  # whether checkpoints are on this machine
    checkpoints = files.describe() if files else f"{path} (does not exist)" if are_here else ""
    return [
        *([("Directory", directory)] if directory else []),
        *([("Checkpoints", checkpoints)] if checkpoints else []),
    ]
