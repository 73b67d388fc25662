"""The archive's records: a run, its pods, and the log of each run of a pod's container."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class PhaseStep(NamedTuple):
    """The beginning of a phase. `at`: when it was observed, in seconds since the epoch; not derived from conditions."""

    at: float
    phase: str
    message: str = ""


@dataclass(slots=True)
class RunRecord:
    """One workload from its submit to its end: the row of the table `runs`, with JSON in `body`."""

    uid: str
    """The uid of the job."""
    id: str
    """The workload id of the REST API."""
    name: str
    namespace: str
    namespace_uid: str
    project: str
    kind: str
    created: float
    finished: float | None = None
    deleted: float | None = None
    phase: str = ""
    attempts: int = 0
    """Starts of the rank that was started most often."""
    verdict: str = ""
    """The sentence of `rowlock why`; "" until the run has ended."""
    body: dict[str, Any] = field(default_factory=dict)
    """`job`, `group`, `project`, `cluster`, `phases`, `events`, `why`, `lost`: see `docs/design/archive.md`."""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod as it was last seen. Times in seconds since the epoch."""

    pod_uid: str
    run_uid: str
    name: str
    created: float
    deleted: float | None
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The log of one run of a container. `size`: bytes of its lines with their times; `stored`: bytes on disk."""

    pod_uid: str
    container: str
    number: int
    """The number of the run of the container in its pod, from 0."""
    run_uid: str
    namespace: str
    pod: str
    began: float
    """When its first line was written; the file's mtime when the line has no time."""
    size: int
    stored: int
    file: str = ""
    """The name of its file in the directory of logs; "" = it is in the database."""
