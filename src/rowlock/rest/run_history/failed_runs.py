"""The failed runs of containers that a pod's status has no more: kept with the record of their workload.

A status has the last two runs of a container, and a pod that is deleted takes it away. So each failure is noted when it is seen. The first
ones and the last ones are kept; a program that fails for days fails in the same way in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.pods import EndedRun, ended_runs

FIRST, LAST = 3, 5
"""How many failed runs of a container are kept at least, from either end."""
MAX_PODS = 1000
"""Pods of a run whose failures are noted."""

FailedRuns = dict[str, dict[str, dict[str, Any]]]
"""Uid of a pod → container → number of the run, as text → `{"terminated", "init"}`. As JSON it is in the record of the workload."""


def note_failed_runs(noted: FailedRuns, pod: Object) -> bool:
    """Add the failed runs of a pod's status; returns whether there were new ones."""
    is_changed = False
    for run in ended_runs(pod):
        if not run.terminated.get("exitCode") or (objects.uid(pod) not in noted and len(noted) >= MAX_PODS):
            continue
        runs = noted.setdefault(objects.uid(pod), {}).setdefault(run.container, {})
        if str(run.number) in runs:
            continue
        runs[str(run.number)] = {"terminated": dict(run.terminated), "init": run.is_init}
        if len(runs) > FIRST + LAST:
            del runs[sorted(runs, key=int)[FIRST]]
        is_changed = True
    return is_changed


def failed_runs_of(body: Mapping[str, Any]) -> dict[str, list[EndedRun]]:
    """Uid of a pod → its failed runs, from the record of a workload. None of them is a container's current one."""
    return {
        pod: [
            EndedRun(container, int(number), run["terminated"], is_current=False, is_init=bool(run["init"]))
            for container, runs in containers.items()
            for number, run in runs.items()
        ]
        for pod, containers in (body.get("failedRuns") or {}).items()
    }
