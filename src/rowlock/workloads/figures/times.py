"""How long a workload waited and ran, according to its conditions (after a restart, since it last began to run), and how many of its GPUs are idle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.figures.usage_series import LatestUsage


class Milestones(NamedTuple):
    """Times in Unix seconds; 0 if the event has not happened."""

    created: float
    started: float
    ended: float
    is_suspended: bool

    def waiting_seconds(self, now: float) -> int | None:
        """Seconds from the job's creation until it ran, else until its end or `now`; None for a suspended job."""
        return None if self.is_suspended else _span(self.created, self.started or self.ended or now)

    def running_seconds(self, now: float) -> int | None:
        """Seconds from when it began to run until its end or `now`; 0 if it never ran, None for a suspended job."""
        return None if self.is_suspended else _span(self.started, self.ended or now)


def _span(begin: float, end: float) -> int:
    return max(0, int(end - begin)) if begin else 0


def read_milestones(job: Object) -> Milestones:
    """When the job was created, ran and ended. Reads each part once, since lists of ten thousand are sorted by it. When the job ends, the
    operator sets the condition Running to False and keeps its time."""
    status = job.get("status") or {}
    started, ended = 0.0, _time_of(status.get("completionTime"))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Running":
            started = _time_of(condition.get("lastTransitionTime"))
        elif condition.get("type") in ("Failed", "Complete", "Completed") and condition.get("status") == "True":
            ended = ended or _time_of(condition.get("lastTransitionTime"))
    spec = job.get("spec") or {}
    if job.get("kind") in ("Job", "JobSet", "TrainJob"):
        started = started or _time_of(status.get("startTime"))
    is_suspended = bool((spec.get("runPolicy") or {}).get("suspend") or spec.get("suspend"))
    created = _time_of((job.get("metadata") or {}).get("creationTimestamp"))
    return Milestones(created, started, ended, is_suspended and not ended)


def _time_of(text: object) -> float:
    return _parse_time(str(text or ""))


@lru_cache(maxsize=16384)
def _parse_time(text: str) -> float:
    """Unix seconds; 0 for a missing or malformed time. Cached: times have whole seconds, so a list of ten thousand workloads has
    few different ones."""
    try:
        return objects.seconds(text)
    except ValueError:
        return 0.0


IDLE_AFTER_S = 300.0
"""Seconds without work after which a GPU counts as idle, as in Run:ai."""

LookUpUsage = Callable[[str], LatestUsage | None]
"""Pod's uid → its latest usage; None if it has not been measured."""


def count_idle_gpus(pods: Iterable[Object], look_up: LookUpUsage | None, now: float) -> int | None:
    """How many GPUs of these pods have been idle for `IDLE_AFTER_S` at the time `now`; None if none of them is measured."""
    if look_up is None:
        return None
    usages = [usage for pod in pods if (usage := look_up(objects.uid(pod))) is not None]
    if not any(not math.isnan(busy) for usage in usages for busy, _ in usage.gpus.values()):
        return None
    return sum(now - since >= IDLE_AFTER_S for usage in usages for since in usage.gpu_idle_since.values())
