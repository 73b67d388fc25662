"""The server's answers as dataclasses. Fields that a newer server adds are only in `raw`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock.answers import workloads as answers
    from rowlock.answers.cluster import Project

FINISHED_PHASES = ("Completed", "Failed")
"""Phases in which a workload has ended by itself; after `suspend` it is Stopped, after `delete` Deleted."""

Json = Mapping[str, Any]
_RANK = re.compile(r"^\[([^\]\n]{1,80})\] ?")


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """A workload as the server saw it when it answered."""

    id: str
    name: str
    project: str
    type: str
    """Distributed, Training or Workspace."""
    framework: str
    """PyTorch, TF, MPI, XGBoost, JAX, or "" for a workload of one pod."""
    phase: str
    message: str
    """Why it is in this phase, in a sentence, or ""."""
    created_at: str
    """RFC 3339."""
    raw: Json = field(repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether it has ended by itself."""
        return self.phase in FINISHED_PHASES

    def is_in(self, phases: Collection[str]) -> bool:
        """Whether it is in one of the phases. In an answer to `wait`, the server's `reachedPhase` counts, too: an elastic job has
        reached Running when its minimum runs while other pods wait for a node, although its phase is Degraded then."""
        return self.phase in phases or (self.phase != "Deleted" and self.raw.get("reachedPhase") in phases)

    @classmethod
    def from_json(cls, body: answers.Workload) -> WorkloadInfo:
        """From an answer of /workloads."""
        return cls(
            id=body["id"],
            name=body["name"],
            project=body["projectName"],
            type=body["type"],
            framework=body["distributedFramework"],
            phase=body["phase"],
            message=body["phaseMessage"] or "",
            created_at=body["createdAt"],
            raw=body,
        )

    @classmethod
    def from_submit(cls, body: answers.DistributedWorkload) -> WorkloadInfo:
        """From the answer to a submit, which has no project's name and no type yet."""
        identity, phase = body["workloadId"], body["actualPhase"]
        return cls(identity, body["name"], body["projectId"], "", "", phase, "", body["createdAt"], raw=body)


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """One pod of a workload."""

    name: str
    rank: str
    """The number of its first rank, or the role of a pod without ranks (`launcher`)."""
    status: str
    node: str
    restarts: int
    exit_code: int | None
    message: str
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, body: answers.Pod) -> WorkloadPod:
        """From an item of /workloads/{id}/pods."""
        return cls(
            name=body["name"],
            rank=body["rank"],
            status=body["status"],
            node=body["nodeName"] or "",
            restarts=body["restarts"],
            exit_code=body["exitCode"],
            message=body["message"],
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of output and its origin: `rank 0`, `launcher`; "" in the log of a single pod."""

    source: str
    text: str

    @property
    def rank(self) -> int | None:
        """The rank's number; None for a launcher or a pod without a rank."""
        word, _, number = self.source.partition(" ")
        return int(number) if word == "rank" and number.isascii() and number.isdigit() else None

    @classmethod
    def from_line(cls, line: bytes) -> LogLine:
        """From a line of a workload's merged log, without its newline."""
        text = line.decode(errors="replace")
        if tag := _RANK.match(text):
            return cls(tag[1], text[tag.end() :])
        return cls("", text)


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """A project and its quota."""

    name: str
    id: str
    namespace: str
    gpu_quota: float
    """The number of GPUs that are guaranteed to it."""
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, body: Project) -> ProjectInfo:
        """From an item of /org-unit/projects."""
        quota = body["totalResources"]["gpuQuota"]
        return cls(body["name"], body["id"], body["status"]["namespace"], float(quota), raw=body)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """An existing or deleted workload, as recorded in the archive."""

    id: str
    name: str
    project: str
    phase: str
    verdict: str
    """What happened, in a sentence."""
    attempts: int
    created_at: str
    finished_at: str
    tags: tuple[str, ...]
    note: str
    favourite: bool
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, body: answers.RunHeader) -> RunInfo:
        """From an item of /runs."""
        return cls(
            id=body["id"],
            name=body["name"],
            project=body["projectName"],
            phase=body["phase"],
            verdict=body["verdict"],
            attempts=body["attempts"],
            created_at=body["createdAt"],
            finished_at=body["finishedAt"] or "",
            tags=tuple(body["tags"]),
            note=body["note"],
            favourite=body["favourite"],
            raw=body,
        )
