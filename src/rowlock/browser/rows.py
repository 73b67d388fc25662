"""One workload as a row of the web UI: the table's columns, and a sentence that explains its phase."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.workloads import runai_json
from rowlock.workloads.figures import times
from rowlock.workloads.history import suspended_sentence
from rowlock.workloads.runai_json import Workload

_COPIED = (
    "id", "name", "type", "distributedFramework", "category", "phase", "phaseReason", "phaseUpdatedAt", "projectName",
    "departmentName", "namespace", "submittedBy", "priorityClassName", "preemptible", "createdAt", "completedAt", "runningPods",
    "images", "clusterId",
)  # fmt: skip
"""Fields of Run:ai's Workload that a row has under the same name."""
_STANDING = {
    "Creating": "Its pods are being made.",
    "Pending": "It has not been scheduled yet.",
    "Initializing": "All pods have a node; containers are starting.",
    "Resuming": "It was resumed; its pods are being made again.",
    "Stopping": "It was suspended; its pods are ending.",
    "Deleting": "It was deleted; its pods are ending.",
    "Completed": "It completed; no rank failed.",
    "Failed": "It failed, and no rank left an exit code or a log here.",
    "Degraded": "Some of its pods do not run.",
}
"""The sentence for a phase if nothing more is known."""


def workload_row(workload: Workload, create_failure: str = "") -> dict[str, Any]:
    """The row. `create_failure` is the operator's message if it could not create a pod, else ""."""
    body = runai_json.workload_json(workload)
    extra = body["additionalFields"]
    requested, asked, held = body["requestedPods"], body["workloadRequestedResources"], body["allocatedResources"]
    ran = times.read_milestones(workload.job).started
    more = {
        "cpuRequest": asked["cpu"]["request"], "cpuAllocation": held["cpu"], "cpuMemoryRequest": asked["cpuMemory"]["request"],
        "cpuMemoryAllocation": held["cpuMemory"], "gpuMemoryRequest": asked["gpuMemory"]["request"],
        "dataSources": [{"name": one["name"], "type": one.get("type") or ""} for one in body["datasources"]],
        "aiApplication": body["aiApplicationName"], "requestedRuns": requested["completions"],
        "ranAt": objects.timestamp(ran) if ran else None, "guaranteedUntil": body["guaranteedRuntimeEndsAt"],
        "connections": extra["ports"],
    }  # fmt: skip
    idle = {} if body["idleAllocatedGpus"] is None else {"idleGpus": body["idleAllocatedGpus"]}
    return {
        **{name: body[name] for name in _COPIED},
        "why": why_sentence(workload, body["phase"], body["phaseMessage"] or create_failure),
        "requestedPods": requested["number"],
        "minPods": requested["min"],
        "maxPods": requested["max"],
        "failedPods": extra["failedPods"],
        "nodePool": runai_json.node_pool_name(workload.job),
        "nodes": extra["nodes"],
        "gpuRequest": asked["gpu"]["request"],
        "gpuAllocation": held["gpu"],
        "gpuMemoryAllocation": held["gpuMemory"],
        "kind": extra["kind"],
        "startedAt": extra["startedAt"],
        "canStop": body["actionsSupport"]["suspend"],
        **idle,
        **{name: value for name, value in more.items() if value not in (None, 0, "0", [])},
    }


def why_sentence(workload: Workload, phase: str, message: str) -> str:
    """The message if there is one, else a sentence for the phase."""
    if message:
        return message
    if phase == "Stopped":
        return suspended_sentence(objects.name(workload.job))
    if phase == "Running":
        count = len(workload.pods)
        return "Its pod runs." if count == 1 else f"All {count} pods run."
    return _STANDING.get(phase, "Nothing is known of it yet.")
