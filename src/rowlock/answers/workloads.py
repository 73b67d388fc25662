"""Workloads, their pods, events, logs' curves and usage, past runs, and what explains them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from rowlock.answers import Json, Time

Phase = Literal[
    "Completed", "Creating", "Degraded", "Deleted", "Deleting", "Failed", "Initializing", "Pending", "Resuming", "Running", "Stopped", "Stopping",
]  # fmt: skip
WorkloadKind = Literal["Distributed", "Training", "Workspace"]
Source = Literal["CLI", "Control-plane", "Other"]
Reference = TypedDict("Reference", {"id": str, "name": str})
TypedReference = TypedDict("TypedReference", {"id": str, "name": str, "type": NotRequired[str]})
Child = TypedDict("Child", {"id": str, "type": str})
Condition = TypedDict("Condition", {
    "type": str | None, "status": str | None, "message": str | None, "reason": str | None, "lastTransitionTime": Time | None,
})  # fmt: skip

# ---------------------------------------------------------------- resources

Gpus = TypedDict("Gpus", {"request": float, "limit": float})
Cores = TypedDict("Cores", {"request": float | None, "limit": float | None})
Amount = TypedDict("Amount", {"request": str | None, "limit": str | None})
ExtendedResource = TypedDict("ExtendedResource", {"resource": str, "quantity": str})
RequestedResources = TypedDict("RequestedResources", {
    "gpuRequestType": str | None, "gpu": Gpus, "gpuMemory": Amount, "cpu": Cores, "cpuMemory": Amount,
    "extendedResources": list[ExtendedResource],
})  # fmt: skip
AllocatedResources = TypedDict("AllocatedResources", {
    "gpu": float, "gpuMemory": str, "cpu": float, "cpuMemory": str, "extendedResources": list[Json],
})  # fmt: skip
ActionsSupport = TypedDict("ActionsSupport", {"delete": bool, "suspend": bool})
RequestedPods = TypedDict("RequestedPods", {
    "number": int, "min": int | None, "max": int | None, "parallelism": int | None, "completions": int | None,
})  # fmt: skip

# ---------------------------------------------------------------- a workload, in the parts that `workloads/` makes

WorkloadIdentity = TypedDict("WorkloadIdentity", {
    "id": str, "name": str, "type": WorkloadKind, "distributedFramework": str,
    "tenantId": int, "clusterId": str, "projectId": str, "projectName": str, "departmentId": str, "departmentName": str,
    "namespace": str, "source": Source, "submittedBy": str, "category": str,
    "priority": int | None, "priorityClassName": str, "preemptible": bool, "sourceApi": str | None,
    "aiApplicationId": str | None, "aiApplicationName": str | None,
})  # fmt: skip
WorkloadTimes = TypedDict("WorkloadTimes", {
    "createdAt": Time, "updatedAt": Time, "deletedAt": Time | None, "completedAt": Time | None, "phaseUpdatedAt": Time,
    "k8sPhaseUpdatedAt": Time, "guaranteedRuntimeEndsAt": Time | None, "totalPendingTimeSeconds": int | None,
    "totalRunningTimeSeconds": int | None,
})  # fmt: skip
WorkloadState = TypedDict("WorkloadState", {
    "phase": Phase, "phaseMessage": str, "phaseReason": str | None, "k8sPhase": str, "conditions": list[Condition],
    "actionsSupport": ActionsSupport, "requestedNodePools": list[str], "currentNodePools": list[str],
})  # fmt: skip
WorkloadResources = TypedDict("WorkloadResources", {
    "runningPods": int, "requestedPods": RequestedPods, "workloadRequestedResources": RequestedResources,
    "podsRequestedResources": RequestedResources, "allocatedResources": AllocatedResources, "idleGpus": int | None,
    "idleAllocatedGpus": int | None,
})  # fmt: skip
WorkloadContent = TypedDict("WorkloadContent", {
    "images": list[str], "command": str, "arguments": str, "environmentVariables": Json, "urls": list[str],
    "datasources": list[TypedReference], "environments": list[TypedReference], "externalConnections": list[Json],
    "childrenIds": list[Child],
})  # fmt: skip
Port = TypedDict("Port", {"name": str, "port": int})
AdditionalFields = TypedDict("AdditionalFields", {
    "status": str, "reason": str | None, "argv": list[str], "pendingPods": int, "succeededPods": int, "failedPods": int,
    "nodes": list[str], "chief": str, "commandLine": str, "startedAt": Time | None, "kind": str, "image": str,
    "ports": list[Port], "gpusSimulated": NotRequired[bool], "ranForSeconds": NotRequired[float | None],
    "cronJob": NotRequired[str], "sweep": NotRequired[str], "sweepParameters": NotRequired[Json],
    "retried": NotRequired[str],
})  # fmt: skip


class Workload(WorkloadIdentity, WorkloadTimes, WorkloadState, WorkloadResources, WorkloadContent):
    """An item of the list of workloads. `additionalFields` has what our command lines show and Run:ai's model lacks; `cronJob` is the name of
    the CronJob that made it, absent from other workloads, as are `sweep` and `sweepParameters`, which a run of a sweep has; `retried` says what
    was decided about a retry, if anything was."""

    additionalFields: AdditionalFields


PendingMessage = TypedDict("PendingMessage", {
    "nodePool": str, "phaseReason": str | None, "reason": str | None, "orgType": str, "userMessage": str,
})  # fmt: skip


class WorkloadDetailed(Workload):
    """One workload, with why it waits."""

    pendingSchedulingMessages: list[PendingMessage]


class AwaitedWorkload(WorkloadDetailed):
    """The answer to `wait`: the phase of those asked for that it has reached; null after the timeout."""

    reachedPhase: Phase | None


StandardWorkload = TypedDict("StandardWorkload", {
    "name": str, "requestedName": str, "workloadId": str, "projectId": str, "departmentId": str, "clusterId": str,
    "createdBy": str, "createdAt": Time, "deletedAt": Time | None, "desiredPhase": Literal["Running", "Stopped", "Deleted"],
    "actualPhase": Phase, "spec": Json,
})  # fmt: skip
"""A workload of one pod as it was submitted; also the answer to its submit."""


class DistributedWorkload(StandardWorkload):
    """A distributed workload as it was submitted; also the answer to its submit."""

    masterSpecSameAsWorker: bool | None
    masterSpec: Json | None


Workloads = TypedDict("Workloads", {"workloads": list[Workload], "next": NotRequired[int]})
BatchFailure = TypedDict("BatchFailure", {"id": str, "code": int, "message": str})
Batch = TypedDict("Batch", {"id": str, "succeeded": list[str], "failed": list[BatchFailure]})
KindName = TypedDict("KindName", {"group": str, "version": str, "kind": str})
ManifestMetadata = TypedDict("ManifestMetadata", {
    "name": str, "projectId": str, "priority": str, "category": str, "preemptibility": str, "id": str, "gvk": KindName,
    "projectName": str, "clusterId": str, "tenantId": int, "departmentId": str, "departmentName": str, "createdAt": Time,
    "createdBy": str, "updatedAt": Time, "updatedBy": str, "deletedAt": Time | None, "deletedBy": str | None,
})  # fmt: skip
ManifestWorkload = TypedDict("ManifestWorkload", {
    "metadata": ManifestMetadata, "desiredPhase": str, "workloadManifest": Json, "rawManifest": Json,
})  # fmt: skip
SyncInfo = TypedDict("SyncInfo", {"status": str, "message": str})
SyncedWorkload = TypedDict("SyncedWorkload", {"workload": ManifestWorkload, "syncInfo": SyncInfo})

# ---------------------------------------------------------------- pods

PodContainer = TypedDict("PodContainer", {"name": str, "image": str, "startedAt": Time | None})
LaunchedRanks = TypedDict("LaunchedRanks", {"first": int, "count": int})
PodFields = TypedDict("PodFields", {
    "name": str, "id": str, "workloadId": str, "workloadName": str, "clusterId": str, "projectId": str, "projectName": str,
    "tenantId": int, "priorityClassName": str, "createdAt": Time, "updatedAt": Time, "completedAt": Time | None,
    "deletedAt": Time | None, "k8sPhase": str, "k8sPhaseUpdatedAt": Time, "nodeName": str | None, "ip": str | None,
    "hostIp": str | None, "containers": list[PodContainer], "currentNodePool": str, "requestedNodePools": list[str],
    "requestedResources": RequestedResources, "allocatedResources": AllocatedResources, "tolerations": list[Json],
    "nodeAffinity": Json | None, "revisionId": str | None, "status": str, "ready": bool, "role": str, "index": int,
    "restarts": int, "exitCode": int | None, "message": str,
})  # fmt: skip
RankFields = TypedDict("RankFields", {"rank": str, "launchedRanks": LaunchedRanks | None})


class Pod(PodFields, RankFields):
    """A pod of a workload. `rank` is its label in merged logs, `launchedRanks` the ranks that torchrun starts in it, if it starts several."""


Pods = TypedDict("Pods", {"pods": list[Pod], "next": NotRequired[int]})
StructureObject = TypedDict("StructureObject", {"id": str, "owner": str | None, "kind": str, "name": str, "status": str})  # fmt: skip
Structure = TypedDict("Structure", {"objects": list[StructureObject]})

# ---------------------------------------------------------------- events and history

InvolvedObject = TypedDict("InvolvedObject", {"uid": str, "kind": str, "name": str, "namespace": str})
Event = TypedDict("Event", {
    "id": str, "createdAt": Time, "type": str, "clusterId": str, "message": str, "reason": str, "source": str, "count": int,
    "involvedObject": InvolvedObject,
})  # fmt: skip
Events = TypedDict("Events", {"events": list[Event], "next": NotRequired[int]})
HistoryMeta = TypedDict("HistoryMeta", {"creationTimestamp": Time, "type": Literal["Event", "PhaseUpdate"]})
PhaseUpdate = TypedDict("PhaseUpdate", {"phase": str, "phaseMessage": str})
HistorySpec = TypedDict("HistorySpec", {"event": NotRequired[Event], "phaseUpdate": NotRequired[PhaseUpdate]})
HistoryRecord = TypedDict("HistoryRecord", {"meta": HistoryMeta, "spec": HistorySpec})
History = TypedDict("History", {"records": list[HistoryRecord], "next": NotRequired[int]})

# ---------------------------------------------------------------- what explains a workload

Holder = TypedDict("Holder", {
    "projectName": str, "workloadId": str, "workloadName": str, "phase": str, "gpus": float, "pods": int,
})  # fmt: skip
ExplanationFields = TypedDict("ExplanationFields", {
    "name": str, "projectName": str, "phase": Phase, "since": str, "reason": str, "message": str, "podGroup": str,
    "minMember": int | None, "queue": str, "record": Json, "evicted": Event | None, "warnings": list[Event],
})  # fmt: skip


class Explanation(ExplanationFields):
    """Why a workload is in its phase, and which workloads hold the GPUs that it waits for."""

    heldBy: str
    holders: list[Holder]


PodExplanation = TypedDict("PodExplanation", {
    "name": str, "projectName": str, "workloadName": str, "phase": str, "since": str, "reason": str, "message": str, "record": Json,
    "heldBy": str, "holders": list[Holder],
})  # fmt: skip
"""Why a pod waits. `workloadName`: that of the workload it belongs to, which has an explanation of its own; "" if it belongs to none."""

ContainerStop = TypedDict("ContainerStop", {"pod": str, "at": str, "sentence": str, "count": int})
Remark = TypedDict("Remark", {"kind": str, "sentence": str})
Diagnosis = TypedDict("Diagnosis", {
    "name": str, "phase": Phase, "sentence": str, "incidents": list[Json], "verdict": Json | None, "ranks": list[Json],
    "ends": list[ContainerStop], "remarks": list[Remark],
})  # fmt: skip
WhatIf = TypedDict("WhatIf", {"verdict": str, "message": str, "hint": str, "changes": list[str]})

# ---------------------------------------------------------------- figures

MetricValue = TypedDict("MetricValue", {"value": str, "timestamp": Time})
Measurement = TypedDict("Measurement", {"type": str, "labels": Json, "values": list[MetricValue]})
Metrics = TypedDict("Metrics", {"measurements": list[Measurement]})
Used = TypedDict("Used", {
    "cpuCores": float | None, "memoryBytes": float | None, "diskReadBytes": float | None, "diskWriteBytes": float | None,
    "netReceiveBytes": float | None, "netTransmitBytes": float | None, "gpuMemoryBytes": float | None,
    "gpuUtilization": float | None,
})  # fmt: skip
UsageOfWorkload = TypedDict("UsageOfWorkload", {
    "id": str, "name": str, "projectName": str, "phase": Phase, "podCount": int, "gpus": float, "usage": Used,
    "idleSeconds": int | None,
})  # fmt: skip
UsageOfNode = TypedDict("UsageOfNode", {
    "name": str, "cpuCores": float | None, "memoryBytes": float | None, "gpus": float, "pods": int, "usage": Used,
})  # fmt: skip
Usage = TypedDict("Usage", {"measured": bool, "workloads": list[UsageOfWorkload], "nodes": list[UsageOfNode]})
UsageOfGpu = TypedDict("UsageOfGpu", {"gpu": str, "gpuUtilization": float | None, "gpuMemoryBytes": float | None})
UsageOfPod = TypedDict("UsageOfPod", {
    "name": str, "rank": str, "node": str, "phase": str, "gpus": float, "usage": Used, "perGpu": list[UsageOfGpu],
})  # fmt: skip


class WorkloadUsage(UsageOfWorkload):
    """What a workload and each of its pods use now."""

    measured: bool
    pods: list[UsageOfPod]


HoursRow = TypedDict("HoursRow", {
    "projectName": str, "userName": str, "workloadName": str, "workloadId": str, "runs": int, "failedRuns": int,
    "gpuHoursHeld": float, "gpuHoursUsed": float | None, "gpuHoursIdle": float | None, "gpuHoursWasted": float,
    "gpuHoursNotMeasured": float, "hoursWaited": float, "gpusSimulated": bool,
})  # fmt: skip
"""GPU hours of a project, a user or a run; "" for what the row is not about. `gpuHoursUsed` is null where no GPU was measured, `gpuHoursIdle`
where nothing was; `gpuHoursWasted` are those of failed runs, and of containers that failed."""
UsageHours = TypedDict("UsageHours", {
    "by": str, "since": Time, "until": Time, "rows": list[HoursRow], "total": HoursRow, "rowsInAll": int, "cut": str, "problem": str,
})  # fmt: skip
Curve = TypedDict("Curve", {"metric": str, "axis": str, "points": list[list[Any]]})
Curves = TypedDict("Curves", {"rank": str, "curves": list[Curve], "notes": list[str]})
EventFile = TypedDict("EventFile", {"path": str, "place": str, "begunAt": Time})
EventFiles = TypedDict("EventFiles", {"files": list[EventFile]})
NotifyTrial = TypedDict("NotifyTrial", {
    "target": str, "delivered": bool, "status": int | None, "answer": str, "reason": str, "signed": bool,
})  # fmt: skip

# ---------------------------------------------------------------- runs

RunHeader = TypedDict("RunHeader", {
    "id": str, "name": str, "projectName": str, "kind": str, "createdAt": Time, "finishedAt": Time | None,
    "deletedAt": Time | None, "phase": Phase, "attempts": int, "verdict": str, "durationSeconds": float | None,
    "tags": list[str], "note": str, "favourite": bool,
})  # fmt: skip
Runs = TypedDict("Runs", {"runs": list[RunHeader], "cut": str, "problem": str, "next": NotRequired[int]})
RunPhase = TypedDict("RunPhase", {"at": Time, "phase": str, "message": str})
RunPod = TypedDict("RunPod", {
    "id": str, "createdAt": Time, "completedAt": Time | None, "deletedAt": Time | None, "nodeName": str | None, "status": str,
    "exitCode": int | None, "restarts": int,
})  # fmt: skip
RunAttempt = TypedDict("RunAttempt", {
    "attempt": int, "startedAt": Time, "endedAt": Time | None, "pod": str, "restart": int, "logBytes": int | None,
})  # fmt: skip
RunRank = TypedDict("RunRank", {"rank": str, "pod": str, "pods": list[RunPod], "attempts": list[RunAttempt]})


class Run(RunHeader):
    """All that is kept of a run."""

    phases: list[RunPhase]
    ranks: list[RunRank]
    why: Json | None
    events: int
    ends: list[ContainerStop]
    checkpointsOf: str
    ran: Json
    manifest: Json
