"""The server's answers about sweeps as dataclasses. Fields that a newer server adds are only in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock.answers import sweeps as answers

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """A sweep as the server saw it when it answered."""

    id: str
    name: str
    project: str
    phase: str
    """Running, Stopped, Completed (all its runs have ended), or Refused."""
    message: str
    total: int
    """The number of its runs."""
    begun: int
    """How many of them were made."""
    unfinished: int
    """How many of those have not ended."""
    completed: int
    failed: int
    stopped: int
    """How many were stopped early."""
    raw: Json = field(repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it goes on by itself: all its runs have ended, or it is stopped and those that were made have."""
        return self.phase in ("Completed", "Refused") or (self.phase == "Stopped" and not self.unfinished)

    @classmethod
    def from_json(cls, body: answers.Sweep) -> SweepInfo:
        """From an answer of /sweeps."""
        runs = body["runs"]
        return cls(
            id=body["id"],
            name=body["name"],
            project=body["projectName"],
            phase=body["phase"],
            message=body["message"],
            total=runs["total"],
            begun=runs["begun"],
            unfinished=runs["unfinished"],
            completed=runs["completed"],
            failed=runs["failed"],
            stopped=runs["stopped"],
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class SweepRunInfo:
    """One run of a sweep."""

    index: int
    name: str
    """The name of its job."""
    id: str
    phase: str
    """As of a workload; Waiting before it is made, Deleted after its job was deleted."""
    message: str
    parameters: Mapping[str, str]
    command: list[str]
    """What its pods run; [] while it has no job."""
    best: float | None
    """The best value of the metric that was asked for; None if it has none, or no number."""
    last: float | None
    raw: Json = field(repr=False)

    @property
    def row(self) -> dict[str, Any]:
        """A flat row for a table, as of pandas: `name`, `phase`, `parameters.NAME` for each parameter, `best`, `last`."""
        parameters = {f"parameters.{name}": value for name, value in self.parameters.items()}
        return {"name": self.name, "phase": self.phase, **parameters, "best": self.best, "last": self.last}

    @classmethod
    def from_json(cls, body: answers.SweepRun) -> SweepRunInfo:
        """From an item of the `entries` of /sweeps/{id}."""
        metric = body["metric"]
        return cls(
            index=body["index"],
            name=body["name"],
            id=body["id"],
            phase=body["phase"],
            message=body["message"],
            parameters=body["parameters"],
            command=list(body["command"]),
            best=metric["best"] if metric else None,
            last=metric["last"] if metric else None,
            raw=body,
        )


def read_runs(body: answers.SweepDetailed) -> tuple[list[SweepRunInfo], int]:
    """The runs of an answer of /sweeps/{id}, in its order, and how many of them it had no time to read."""
    return [SweepRunInfo.from_json(entry) for entry in body["entries"]], int(body["unread"])
