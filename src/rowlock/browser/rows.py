"""One workload as a row of the web UI: the table's columns, and a sentence that explains its phase."""

from __future__ import annotations

from typing import cast

from rowlock import objects
from rowlock.answers.live import Row, RowFields
from rowlock.workloads import runai_json
from rowlock.workloads.figures import times
from rowlock.workloads.history import suspended_sentence
from rowlock.workloads.runai_json import Workload

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


def workload_row(workload: Workload, create_failure: str = "") -> Row:
    """The row. `create_failure` is the operator's message if it could not create a pod, else ""."""
    body = runai_json.workload_json(workload)
    more = body["additionalFields"]
    requested, asked, held = body["requestedPods"], body["workloadRequestedResources"], body["allocatedResources"]
    ran = times.read_milestones(workload.job).started
    idle = body["idleAllocatedGpus"]
    extras = {
        "cpuRequest": asked["cpu"]["request"], "cpuAllocation": held["cpu"], "cpuMemoryRequest": asked["cpuMemory"]["request"],
        "cpuMemoryAllocation": held["cpuMemory"], "gpuMemoryRequest": asked["gpuMemory"]["request"],
        "dataSources": [{"name": one["name"], "type": one.get("type") or ""} for one in body["datasources"]],
        "aiApplication": body["aiApplicationName"], "requestedRuns": requested["completions"],
        "ranAt": objects.timestamp(ran) if ran else None, "guaranteedUntil": body["guaranteedRuntimeEndsAt"],
        "connections": more["ports"], "cronJob": more.get("cronJob"),
    }  # fmt: skip
    fields: RowFields = {
        "id": body["id"], "name": body["name"], "type": body["type"], "distributedFramework": body["distributedFramework"],
        "category": body["category"], "phase": body["phase"], "phaseReason": body["phaseReason"],
        "phaseUpdatedAt": body["phaseUpdatedAt"], "projectName": body["projectName"], "departmentName": body["departmentName"],
        "namespace": body["namespace"], "submittedBy": body["submittedBy"], "priorityClassName": body["priorityClassName"],
        "preemptible": body["preemptible"], "createdAt": body["createdAt"], "completedAt": body["completedAt"],
        "runningPods": body["runningPods"], "images": body["images"], "clusterId": body["clusterId"],
        "why": why_sentence(workload, body["phase"], body["phaseMessage"] or create_failure),
        "requestedPods": requested["number"], "minPods": requested["min"], "maxPods": requested["max"],
        "failedPods": more["failedPods"], "nodePool": runai_json.node_pool_name(workload.job), "nodes": more["nodes"],
        "gpuRequest": asked["gpu"]["request"], "gpuAllocation": held["gpu"], "gpuMemoryAllocation": held["gpuMemory"],
        "kind": more["kind"], "startedAt": more["startedAt"], "canStop": body["actionsSupport"]["suspend"],
    }  # fmt: skip
    kept = {name: value for name, value in extras.items() if value not in (None, 0, "0", [])}
    return cast(Row, {**fields, **({} if idle is None else {"idleGpus": idle}), **kept})


def why_sentence(workload: Workload, phase: str, message: str) -> str:
    """The message if there is one, else a sentence for the phase."""
    if message:
        return message
    if phase == "Stopped":
        return suspended_sentence(workload.job)
    if phase == "Running":
        count = len(workload.pods)
        return "Its pod runs." if count == 1 else f"All {count} pods run."
    return _STANDING.get(phase, "Nothing is known of it yet.")
