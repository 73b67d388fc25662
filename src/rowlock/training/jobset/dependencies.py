"""`dependsOn` of replicated jobs, and the order of a set that starts `InOrder`: which replicated jobs wait, and for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rowlock.objects import Object, dig
from rowlock.training.jobset.model import Json, replicas

_STATES = {"Ready": "is ready", "Complete": "has completed"}


def is_in_order(jobset: Object) -> bool:
    """Whether each replicated job starts when the one before it is ready."""
    return bool(dig(jobset, "spec.startupPolicy.startupPolicyOrder", "") == "InOrder")


def unmet_dependencies(
    job: Json, counts: Mapping[str, Json], sizes: Mapping[str, int]
) -> Iterator[tuple[str, str, int]]:
    """(name, "Ready" or "Complete", its Jobs that are so) of each replicated job that this one still waits for. `counts`, `sizes`: by the
    names of replicated jobs, their status and number of Jobs."""
    for dependency in job.get("dependsOn") or ():
        wanted, status = str(dependency.get("name")), str(dependency.get("status") or "Complete")
        done = _count_done(counts[wanted], status) if wanted in counts else 0
        if wanted not in counts or done < sizes.get(wanted, 1):
            yield wanted, status, done


def _count_done(count: Json, status: str) -> int:
    fields = ("succeeded", "ready", "failed") if status == "Ready" else ("succeeded",)
    return sum(int(count.get(field) or 0) for field in fields)


def waiting_sentence(job: Object, begun: Iterable[Any]) -> str:
    """The first replicated job of a JobSet (or of a TrainJob with the `replicatedJobs` of its JobSet) that waits for others, and for what;
    "" if none does. `begun`: names of replicated jobs that have pods."""
    replicated: list[Json] = list(dig(job, "spec.replicatedJobs", None) or ())
    status = job.get("status") or {}
    found = status.get("replicatedJobsStatus") or status.get("jobsStatus") or ()
    counts = {str(one.get("name")): one for one in found}
    sizes = {str(one.get("name")): replicas(one) for one in replicated}
    has_begun, before, waiting = set(begun), "", list[str]()
    for one in replicated:
        name = str(one.get("name"))
        follows = {"dependsOn": [{"name": before, "status": "Ready"}]} if before and is_in_order(job) else one
        if name not in has_begun and (waits := list(unmet_dependencies(follows, counts, sizes))):
            waiting.append(_sentence(name, waits, sizes))
        before = name
    if len(waiting) < 2:
        return "".join(waiting)
    others = len(waiting) - 1
    return f"{waiting[0]} {others} more replicated {'job waits' if others == 1 else 'jobs wait'} behind it."


def _sentence(name: str, waits: Iterable[tuple[str, str, int]], sizes: Mapping[str, int]) -> str:
    parts = []
    for wanted, status, done in waits:
        if wanted == name:
            return f"{name} never starts: its dependsOn names {name} itself."
        size = sizes.get(wanted, 1)
        count = f" ({done} of {size} Jobs so far)" if size > 1 else ""
        parts.append(f"{wanted} {_STATES.get(status, status)}{count}")
    return f"{name} starts when {' and '.join(parts)}."
