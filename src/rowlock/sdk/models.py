"""The server's answers as dataclasses. Fields that a newer server adds are only in `raw`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    def from_json(cls, body: Json) -> WorkloadInfo:
        """From an answer of /workloads, or of a submit."""
        return cls(
            id=str(body.get("id") or body.get("workloadId") or ""),
            name=str(body.get("name", "")),
            project=str(body.get("projectName") or body.get("projectId") or ""),
            type=str(body.get("type", "")),
            framework=str(body.get("distributedFramework") or ""),
            phase=str(body.get("phase") or body.get("actualPhase") or ""),
            message=str(body.get("phaseMessage") or ""),
            created_at=str(body.get("createdAt") or ""),
            raw=body,
        )


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
    def from_json(cls, body: Json) -> WorkloadPod:
        """From an item of /workloads/{id}/pods."""
        code = body.get("exitCode")
        return cls(
            name=str(body.get("name", "")),
            rank=str(body.get("rank", "")),
            status=str(body.get("status", "")),
            node=str(body.get("nodeName") or ""),
            restarts=int(body.get("restarts") or 0),
            exit_code=None if code is None else int(code),
            message=str(body.get("message") or ""),
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
    def from_json(cls, body: Json) -> ProjectInfo:
        """From an item of /org-unit/projects."""
        totals, status = body.get("totalResources") or {}, body.get("status") or {}
        return cls(
            name=str(body.get("name", "")),
            id=str(body.get("id", "")),
            namespace=str(status.get("namespace", "")),
            gpu_quota=float(totals.get("gpuQuota") or 0),
            raw=body,
        )


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
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, body: Json) -> RunInfo:
        """From an item of /runs."""
        return cls(
            id=str(body.get("id", "")),
            name=str(body.get("name", "")),
            project=str(body.get("projectName", "")),
            phase=str(body.get("phase", "")),
            verdict=str(body.get("verdict") or ""),
            attempts=int(body.get("attempts") or 0),
            created_at=str(body.get("createdAt") or ""),
            finished_at=str(body.get("finishedAt") or ""),
            raw=body,
        )
