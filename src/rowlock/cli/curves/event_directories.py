"""Finds the event files of a run: in its own checkpoint directory, and in its working directory, which may also have files of
other runs. There a file counts if it was begun during the run, and its host name is that of a pod of the run or of no job's pod.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rowlock.cli.curves.curve import MAX_CURVES, PlottedCurve
from rowlock.cli.curves.event_files import Scalar, read_scalars
from rowlock.cli.output import parse_time

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.([0-9]{1,12})\.(.*)")
_MAX_ENTRIES, _MAX_DEPTH, _MAX_FILES = 20_000, 6, 200
"""Limits of a search: directory entries, directory levels, event files."""
_MAX_POINTS = 20_000
"""The most points of a curve."""
_PASSED_OVER = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"})
_SLACK = 2.0
"""Seconds of tolerance around a run's start and end, because the times have whole seconds."""


def checkpoint_directory(data_directory: str, run: dict[str, Any]) -> str:
    """The checkpoint directory of a run. It may be empty or missing."""
    return os.path.join(data_directory, "checkpoints", run["checkpointsOf"])


class EventFile(NamedTuple):
    path: str
    begun: float
    """Seconds since the epoch, from its name."""
    place: str
    """Its directory, relative to the one that was searched."""


def find_event_files(data_directory: str, run: dict[str, Any]) -> list[EventFile]:
    """The event files of a run, the oldest first; only the newest `_MAX_FILES`."""
    own = checkpoint_directory(data_directory, run)
    found = {file.path: file for file, _ in _search(own)}
    code = run["ran"]["code"] or {}
    shared = code.get("copy") or run["ran"]["workingDir"]
    if shared and os.path.isabs(shared):
        pods = tuple(rank["pod"] for rank in run["ranks"])
        start, end = _seconds(run["createdAt"]) or 0.0, _seconds(run["finishedAt"] or run["deletedAt"])
        for file, host in _search(shared):
            is_of_pod = any(host == pod or host.startswith(f"{pod}.") for pod in pods)
            is_in_time = start - _SLACK <= file.begun and (end is None or file.begun <= end + _SLACK)
            if is_in_time and (is_of_pod or not _is_of_any_pod(host)):
                found[file.path] = file
    return sorted(found.values(), key=lambda file: (file.begun, file.path))[-_MAX_FILES:]


def _is_of_any_pod(host: str) -> bool:
    """Whether the host name looks like that of a job's pod (it ends with role and number): then the file is another run's."""
    return re.match(r".*-(master|worker|launcher|chief|ps|evaluator)-[0-9]+(\.|$)", host) is not None


def _seconds(text: str | None) -> float | None:
    time = parse_time(text)
    return None if time is None else time.timestamp()


def _search(top: str) -> Iterator[tuple[EventFile, str]]:
    """Event files below a directory, each with the host that wrote it. Symbolic links are not followed."""
    unvisited, seen = [(top, 0)], 0
    while unvisited and seen < _MAX_ENTRIES:
        directory, depth = unvisited.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if entry.is_dir(follow_symlinks=False):
                if depth < _MAX_DEPTH and entry.name not in _PASSED_OVER:
                    unvisited.append((entry.path, depth + 1))
            elif (match := _EVENT_FILE.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                yield EventFile(entry.path, float(match[1]), os.path.relpath(directory, top)), match[2]


def read_event_curves(data_directory: str, run: dict[str, Any]) -> dict[str, PlottedCurve]:
    """The scalar curves of a run by name. A name that occurs in several directories gets its directory as a prefix."""
    written: dict[str, dict[str, dict[int, Scalar]]] = {}
    for file in find_event_files(data_directory, run):
        try:
            for scalar in read_scalars(file.path):
                if scalar.tag in written or len(written) < MAX_CURVES:
                    _add_scalar(written.setdefault(scalar.tag, {}).setdefault(file.place, {}), scalar)
        except OSError:
            continue  # another user's, or gone
    curves: dict[str, PlottedCurve] = {}
    for tag, places in written.items():
        for place, points in places.items():
            curves[tag if len(places) == 1 else f"{place}/{tag}"] = _to_curve(points)
    return curves


def _add_scalar(points: dict[int, Scalar], scalar: Scalar) -> None:
    """Add a value; the last one for a step counts, because a later attempt repeats some steps."""
    known = points.get(scalar.step)
    if known is None or known.time <= scalar.time:
        points[scalar.step] = scalar


def _to_curve(points: dict[int, Scalar]) -> PlottedCurve:
    """The curve of these points; if there are too many, every n-th is kept, including the last."""
    every = -(-len(points) // _MAX_POINTS)
    return PlottedCurve(
        "step", [(float(step), points[step].value) for step in sorted(points, reverse=True)[::every]][::-1]
    )
