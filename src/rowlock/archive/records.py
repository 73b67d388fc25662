"""What is kept of a run, as values: the run itself, its pods, and the logs of each life of a pod's container."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class PhaseStep(NamedTuple):
    """A phase that began. `at` in seconds since the epoch, as it was seen: not rounded, not rebuilt from conditions."""

    at: float
    phase: str
    message: str = ""


@dataclass(slots=True)
class RunRecord:
    """One workload from its submit to its end: the row of the table `runs`, and in `body` what is whole JSON."""

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
    """Of the rank that began most often."""
    verdict: str = ""
    """What happened, in the sentence of `why`; "" until it has ended."""
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
    """The log of one run of a container. `size` counts the bytes of its lines with their times, `stored` those on disk."""

    pod_uid: str
    container: str
    number: int
    """Which run of the container it is in its pod, from 0."""
    run_uid: str
    namespace: str
    pod: str
    began: float
    """When its first line was written; the time of its file where it has none."""
    size: int
    stored: int
    file: str = ""
    """The name of its file in the directory of logs; "" = it lies in the database."""
