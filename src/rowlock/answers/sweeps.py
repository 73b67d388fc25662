"""What the routes of sweeps answer."""

from typing import Literal, TypedDict

from rowlock.answers import Json, Time

SweepPhase = Literal["Running", "Stopped", "Completed", "Refused"]


class SweepCounts(TypedDict):
    """The runs of a sweep: how many there are in all, were made, have not ended, have completed or failed, were stopped early, are suspended
    with the sweep, and were deleted."""

    total: int
    begun: int
    unfinished: int
    completed: int
    failed: int
    stopped: int
    suspended: int
    deleted: int


class RunMetric(TypedDict):
    """The values of a metric in a run: the best one and the last one; null where it is no number (NaN)."""

    best: float | None
    last: float | None


class SweepRun(TypedDict):
    """A run of a sweep. `phase` is a workload's, or Waiting before it is made, or Deleted. `command` is what its pods run, cut
    to 2,000 characters with an ellipsis, but for the best run."""

    index: int
    name: str
    id: str
    phase: str
    message: str
    parameters: Json
    metric: RunMetric | None
    command: list[str]


class Sweep(TypedDict):
    """A sweep in a list. `phase` is Completed when all its runs have ended; `message` says what keeps it. `metric` is the one it goes by, ""
    if none was named; `stop` the rule by which runs are stopped early, "" if there is none."""

    id: str
    name: str
    projectName: str
    namespace: str
    createdAt: Time
    createdBy: str
    phase: SweepPhase
    message: str
    search: str
    seed: int
    maxParallel: int
    metric: str
    order: Literal["min", "max"]
    stop: str
    stopAfter: int
    parameters: list[str]
    submitCommand: str
    runs: SweepCounts


class SweepDetailed(Sweep):
    """A sweep with its runs: in the order of their numbers, or with a metric the best one first. `best` is that one's number.
    `unread`: how many runs' logs were not read in the time of one answer, so that their metrics are missing; the next answer goes on with them."""

    metrics: list[str]
    unread: int
    best: int | None
    entries: list[SweepRun]


class Sweeps(TypedDict):
    """The sweeps that the caller may see, the newest first."""

    sweeps: list[Sweep]
