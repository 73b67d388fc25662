"""GPU hours of a run: held, used, idle, wasted by failures, and the time it waited, within a window of time. Pure.

They are computed from what the archive keeps (the pods as they were last seen, the samples of their usage, the phases of the job), so
that they cannot disagree with it. All amounts are in seconds; those of GPUs are multiplied by the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.figures.usage_series import IDLE_CORES, IDLE_PERCENT, NOT_MEASURED

WAITING = frozenset({"Creating", "Pending", "Resuming"})
_KILLED = (137, 143)
"""Exit codes of SIGKILL and SIGTERM, which also end pods that are deleted."""

Step = tuple[float, float, float, float]
"""(begin, end, GPU utilization in percent, CPU cores) of a part of a pod's life; NaN = not measured."""
Lives = Mapping[str, Sequence[float | None]]
"""Uid of a pod/number of its restart → when that run of its container was seen running, and seen ended."""


class Window(NamedTuple):
    """From `begin` to `end`, in Unix seconds."""

    begin: float
    end: float

    def seconds(self, begin: float, end: float) -> float:
        """How long an interval overlaps with the window."""
        return max(0.0, min(end, self.end) - max(begin, self.begin))


class HeldTime(NamedTuple):
    """How long a pod had its node, in Unix seconds."""

    begin: float
    end: float


@dataclass(slots=True)
class Hours:
    """Sums over runs, in seconds; those of GPUs are multiplied by their number."""

    runs: int = 0
    failed_runs: int = 0
    held: float = 0.0
    measured: float = 0.0
    """The part of `held` in which the utilization of the GPUs was measured."""
    watched: float = 0.0
    """The part of `held` for which it is known whether the pod was idle, if only by its CPUs."""
    used: float = 0.0
    idle: float = 0.0
    wasted: float = 0.0
    waited: float = 0.0
    is_simulated: bool = False
    """Whether GPUs that were held are simulated: they do no work, and are not measured."""

    def add(self, other: Hours) -> None:
        self.runs += other.runs
        self.failed_runs += other.failed_runs
        self.held += other.held
        self.measured += other.measured
        self.watched += other.watched
        self.used += other.used
        self.idle += other.idle
        self.wasted += other.wasted
        self.waited += other.waited
        self.is_simulated = self.is_simulated or other.is_simulated

    def add_pod(self, gpus: float, hold: HeldTime, steps: Iterable[Step], wasted: float, window: Window) -> None:
        """Add what a pod with so many GPUs held and did; `wasted`: seconds of the pod."""
        self.held += gpus * window.seconds(*hold)
        self.wasted += gpus * wasted
        first, last = max(hold.begin, window.begin), min(hold.end, window.end)
        measured = watched = used = idle = 0.0
        for begin, end, utilization, cores in steps:  # a week may have millions: no calls in here
            seconds = (end if end < last else last) - (begin if begin > first else first)
            if seconds <= 0.0:
                continue
            if utilization == utilization:  # it is not NaN
                measured += seconds
                used += seconds * (utilization if utilization < 100.0 else 100.0)
                if utilization < IDLE_PERCENT:
                    idle += seconds
            elif cores == cores:
                watched += seconds
                if cores < IDLE_CORES:
                    idle += seconds
        self.measured += gpus * measured
        self.watched += gpus * (measured + watched)
        self.used += gpus * used / 100
        self.idle += gpus * idle


def hold_of(pod: Object, deleted: float | None, gone: float) -> HeldTime | None:
    """When a pod began and ceased to hold what it requests; None if it never had a node. `deleted`: when it was deleted, if it was; `gone`:
    when it holds nothing any more at the latest, such as now."""
    if not objects.dig(pod, "spec.nodeName", ""):
        return None
    scheduled = objects.condition(pod, "PodScheduled") or {}
    begin = _time(scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None)
    begin = begin or _time(objects.meta(pod).get("creationTimestamp"))
    ended = gone if deleted is None else min(deleted, gone)
    if objects.phase(pod) in objects.FINAL_PHASES and (ends := _end_times(pod)):
        ended = min(ended, max(ends))
    return HeldTime(begin, max(begin, ended))


def _end_times(pod: Object) -> list[float]:
    return [at for end in _terminations(pod) if (at := _time(end.get("finishedAt")))]


def _terminations(pod: Object) -> list[dict[str, Any]]:
    states = (status.get("state") or {} for status in objects.dig(pod, "status.containerStatuses", []))
    return [end for state in states if (end := state.get("terminated"))]


def _time(text: object) -> float:
    """Unix seconds; 0 for a missing or malformed time."""
    try:
        return objects.seconds(str(text or ""))
    except ValueError:
        return 0.0


def wasted_seconds(pod: Object, hold: HeldTime, lives: Lives, window: Window, *, has_run_failed: bool) -> float:
    """How long a pod held its resources for nothing: always, if its run failed; else until its container was started again after a failure,
    and until its end if it failed itself. A pod that was told to end, such as by a preemption, has not failed."""
    if has_run_failed:
        return window.seconds(*hold)
    prefix = f"{objects.uid(pod)}/"
    begins = sorted(float(life[0] or 0.0) for name, life in lives.items() if name.startswith(prefix))
    last = max(hold.begin, begins[-1]) if len(begins) > 1 else hold.begin
    return window.seconds(hold.begin, min(hold.end, hold.end if _has_failed(pod) else last))


def _has_failed(pod: Object) -> bool:
    if objects.phase(pod) != "Failed":
        return False
    ends = _terminations(pod)
    if not objects.is_deleting(pod) or not ends:
        return bool(ends)  # without an end, its node evicted it, or is lost
    grace = float(objects.meta(pod).get("deletionGracePeriodSeconds") or 0)
    told = _time(objects.meta(pod).get("deletionTimestamp")) - grace
    return any(
        end.get("exitCode") and not (end["exitCode"] in _KILLED and _time(end.get("finishedAt")) >= told)
        for end in ends
    )


def waited_seconds(phases: Sequence[tuple[float, str, str]], gone: float, window: Window) -> float:
    """How long a job waited to start, from its phases: (when each began, its name, its message). `gone`: when the last one ended."""
    ends = [*(step[0] for step in phases[1:]), gone]
    return sum(window.seconds(step[0], end) for step, end in zip(phases, ends, strict=False) if step[1] in WAITING)


def steps_of(body: Mapping[str, Any]) -> Iterator[Step]:
    """The steps of a pod's usage as `UsageSeries.to_json` has it; none of a malformed one."""
    times, columns = body.get("times") or [], body.get("columns") or {}
    missing = [None] * len(times)
    utilization, cores = columns.get("gpu_utilization") or missing, columns.get("cpu_cores") or missing
    begin = float(body.get("start") or 0.0)
    for end, percent, cpus in zip(times, utilization, cores, strict=False):
        yield begin, end, NOT_MEASURED if percent is None else percent, NOT_MEASURED if cpus is None else cpus
        begin = end
