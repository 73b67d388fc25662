"""Finds TensorBoard's event files of a run on this machine, and reads their scalars.

They lie in the run's own directories (its checkpoints, the working directories of its pods), or in the directory it works in, which
may also have files of other runs. There a file counts if it was begun during the run, its host name is that of a pod of the
run or of no job's pod, and it belongs to the user of the run's programs: an answer tells nobody what they could not read themselves.
No link is followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rowlock.curves.curves import Curve
from rowlock.curves.event_records import EventCurves, EventFile, ReadingBudget, RunPlaces, read_scalars
from rowlock.kubelet.files import beneath
from rowlock.kubelet.files.names import is_name
from rowlock.kubelet.pod.directory import WORK_DIRECTORY
from rowlock.kubelet.volumes.checkpoints import may_read_checkpoints

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.([0-9]{1,12})\.(.*)", re.DOTALL)
_OF_A_POD = re.compile(r".*-(master|worker|launcher|chief|ps|evaluator)-[0-9]+(\.|$)")
_MAX_ENTRIES, _MAX_SEARCHED, _MAX_DEPTH, _MAX_FILES = 20_000, 100_000, 6, 200
"""Limits of a search: directory entries below one of the run's directories, below all of them, directory levels, event files."""
_PASSED_OVER = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"})
_SLACK = 2.0
"""Seconds of tolerance around a run's start and end, because the times have whole seconds."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class _Found(NamedTuple):
    file: EventFile
    top: str
    is_own: bool
    """Its directory belongs to the run alone."""


class EventFiles:
    """The event files of the runs on one machine. `data`: the data directory. Its methods read disks: call them in a thread."""

    def __init__(self, data: Path, euid: int | None = None) -> None:
        self._data, self._euid = data, os.geteuid() if euid is None else euid

    def find(self, run: RunPlaces) -> list[EventFile]:
        """The files of a run that may be read, the oldest first; only the newest `_MAX_FILES`. A file of another user is not even named."""
        return [found.file for found in self._find(run) if self._may_open(found, run)]

    def _may_open(self, found: _Found, run: RunPlaces) -> bool:
        with suppress(OSError), self._open(found, run):
            return True
        return False

    def read(self, run: RunPlaces, budget: ReadingBudget | None = None) -> tuple[dict[str, Curve], list[str]]:
        """The curves of a run's files by name, and notes on what was left out. The newest files are read first."""
        budget = budget or ReadingBudget()
        collected = EventCurves()
        for found in reversed(self._find(run)):
            with suppress(OSError), self._open(found, run) as fd, os.fdopen(fd, "rb", closefd=False) as file:
                for scalar in read_scalars(file, budget):
                    collected.add(found.file.place, scalar)
        notes = ["its event files are larger than what is read for curves: the oldest are left out"]
        return collected.curves(), notes if budget.is_spent else []

    def _find(self, run: RunPlaces) -> list[_Found]:
        found, room = dict[str, _Found](), _Room(_MAX_SEARCHED)
        for top in self._own_directories(run):
            found.update((each.file.path, each) for each, _ in _search(top, room, is_own=True))
        for top in run.directories:
            for each, host in _search(top, room, is_own=False):
                if _is_of_run(each.file, host, run):
                    found.setdefault(each.file.path, each)
        return sorted(found.values(), key=lambda each: (each.file.begun, each.file.path))[-_MAX_FILES:]

    def _own_directories(self, run: RunPlaces) -> list[str]:
        work = [str(self._data / "pods" / uid / WORK_DIRECTORY) for uid in run.pods if is_name(uid)]
        is_readable = may_read_checkpoints(self._data, run.checkpoints, run.namespace, run.namespace_uid)
        return [*([str(self._data / "checkpoints" / run.checkpoints)] if is_readable else []), *work]

    @contextmanager
    def _open(self, found: _Found, run: RunPlaces) -> Iterator[int]:
        """A descriptor of the file. Raises OSError: also for what is not a regular file, or another user's in a shared directory."""
        with beneath.open_directory(found.top) as top:
            fd = beneath.open_beneath(top, os.path.relpath(found.file.path, found.top), _READ)
        try:
            status = os.fstat(fd)
            users = {self._euid if user is None or self._euid else user for user in run.users}
            if not stat.S_ISREG(status.st_mode) or not (found.is_own or status.st_uid in users):
                raise PermissionError(f"{found.file.path} is not a file of the run's user")
            yield fd
        finally:
            os.close(fd)


def _is_of_run(file: EventFile, host: str, run: RunPlaces) -> bool:
    """Whether a file in a directory that runs share is one of this run."""
    is_of_pod = any(host == pod or host.startswith(f"{pod}.") for pod in run.pods.values())
    is_in_time = run.began - _SLACK <= file.begun and (run.ended is None or file.begun <= run.ended + _SLACK)
    return is_in_time and (is_of_pod or _OF_A_POD.match(host) is None)


@dataclass(slots=True)
class _Room:
    """How many directory entries a search may still look at, over all directories of a run, which may have thousands of pods."""

    left: int


def _search(top: str, room: _Room, *, is_own: bool) -> Iterator[tuple[_Found, str]]:
    """Event files below a directory, each with the host that wrote it; none if there is no such directory."""
    room.left -= 1  # a directory that is missing or empty is looked at, too
    end = room.left - _MAX_ENTRIES
    with suppress(OSError), beneath.open_directory(top) as fd:
        unvisited = [("", 0)]
        while unvisited and room.left > max(end, 0):
            directory, depth = unvisited.pop()
            for name, is_directory, is_file in _entries(fd, directory, room.left):
                room.left -= 1
                path = f"{directory}/{name}" if directory else name
                if is_directory and depth < _MAX_DEPTH and name not in _PASSED_OVER:
                    unvisited.append((path, depth + 1))
                elif is_file and (match := _EVENT_FILE.fullmatch(name)):
                    file = EventFile(os.path.join(top, path), float(match[1]), directory or ".")
                    yield _Found(file, top, is_own), match[2]


def _entries(top: int, directory: str, most: int) -> list[tuple[str, bool, bool]]:
    """At most `most` and `_MAX_ENTRIES` entries of a directory below `top`: name, whether it is a directory, whether a file; none if it
    cannot be read."""
    with suppress(OSError):
        fd = beneath.open_beneath(top, directory, beneath.DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                some = islice(entries, min(most, _MAX_ENTRIES))
                return [(e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in some]
        finally:
            os.close(fd)
    return []
