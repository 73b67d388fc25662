"""The web UI's live stream: a workload as a row of its list."""

from __future__ import annotations

from typing import TypedDict

from rowlock.answers import Time
from rowlock.answers.workloads import Phase, Port, WorkloadKind

RowFields = TypedDict("RowFields", {
    "id": str, "name": str, "type": WorkloadKind, "distributedFramework": str, "category": str, "phase": Phase,
    "phaseReason": str | None, "phaseUpdatedAt": Time, "projectName": str, "departmentName": str, "namespace": str,
    "submittedBy": str, "priorityClassName": str, "preemptible": bool, "createdAt": Time, "completedAt": Time | None,
    "runningPods": int, "images": list[str], "clusterId": str, "why": str, "requestedPods": int, "minPods": int | None,
    "maxPods": int | None, "failedPods": int, "nodePool": str, "nodes": list[str], "gpuRequest": float, "gpuAllocation": float,
    "gpuMemoryAllocation": str, "kind": str, "startedAt": Time | None, "canStop": bool,
})  # fmt: skip
"""`why` explains the phase in a sentence."""
DataSource = TypedDict("DataSource", {"name": str, "type": str})
RowExtras = TypedDict("RowExtras", {
    "cpuRequest": float, "cpuAllocation": float, "cpuMemoryRequest": str, "cpuMemoryAllocation": str, "gpuMemoryRequest": str,
    "dataSources": list[DataSource], "aiApplication": str, "cronJob": str, "requestedRuns": int, "ranAt": Time, "guaranteedUntil": Time,
    "connections": list[Port], "idleGpus": int,
}, total=False)  # fmt: skip
"""Fields that a row lacks if they are empty."""


class Row(RowFields, RowExtras):
    """A workload in the list."""
