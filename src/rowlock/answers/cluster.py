"""What a cluster consists of: projects, departments, nodes, node pools, cards; what its scheduler says; and lists of words."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from rowlock.answers import Json, Time
from rowlock.answers.workloads import Reference

# ---------------------------------------------------------------- projects and departments

Quota = TypedDict("Quota", {"deserved": float, "limit": float, "overQuotaWeight": float})
MemoryQuota = TypedDict("MemoryQuota", {"deserved": float, "limit": float, "overQuotaWeight": float, "units": str})
Resources = TypedDict("Resources", {"nodePool": Reference, "gpu": Quota, "cpu": Quota, "memory": MemoryQuota, "priority": str})  # fmt: skip
TotalResources = TypedDict("TotalResources", {"gpuQuota": float, "cpuQuota": float, "memoryQuota": float})
QuotaAmounts = TypedDict("QuotaAmounts", {"gpu": float, "cpu": float, "memory": float})
QuotaStatus = TypedDict("QuotaStatus", {
    "allocated": QuotaAmounts, "allocatedNonPreemptible": QuotaAmounts, "requested": QuotaAmounts, "fairShare": QuotaAmounts,
})  # fmt: skip
RangeMeans = TypedDict("RangeMeans", {
    "averageGpuAllocation": float | None, "averageGpuUtilization": float | None, "averageGpuMemoryUtilization": float | None,
    "updatedAt": Time | None,
})  # fmt: skip
OvertimeData = TypedDict("OvertimeData", {"range24hData": RangeMeans, "range7dData": RangeMeans, "range30dData": RangeMeans})  # fmt: skip
ProjectStatus = TypedDict("ProjectStatus", {
    "namespace": str, "phase": Literal["Ready", "NotReady", "Deleting"], "phaseMessage": str, "quotaStatus": QuotaStatus,
    "nodePoolQuotaStatuses": list[Json],
})  # fmt: skip
Parent = TypedDict("Parent", {"id": str, "name": str, "type": str})
Project = TypedDict("Project", {
    "id": str, "name": str, "clusterId": str, "parentId": str, "description": str, "status": ProjectStatus,
    "totalResources": TotalResources, "resources": list[Resources], "effective": Json, "enforceRunaiScheduler": bool,
    "parent": Parent, "defaultNodePools": list[str], "nodeTypes": Json | None, "schedulingRules": Json | None,
    "overtimeData": OvertimeData | None, "createdAt": Time, "updatedAt": Time,
})  # fmt: skip
Projects = TypedDict("Projects", {"projects": list[Project], "next": NotRequired[int]})
DepartmentStatus = TypedDict("DepartmentStatus", {"quotaStatus": QuotaStatus})
Department = TypedDict("Department", {
    "id": str, "name": str, "clusterId": str, "description": str, "createdAt": Time, "updatedAt": Time,
    "createdBy": str | None, "updatedBy": str | None, "children": list[Reference], "status": DepartmentStatus,
    "totalResources": TotalResources, "resources": list[Resources], "defaultNodePools": list[str], "nodeTypes": Json | None,
    "schedulingRules": Json | None, "overtimeData": OvertimeData | None,
})  # fmt: skip
Departments = TypedDict("Departments", {"departments": list[Department], "next": NotRequired[int]})
QueuePriority = TypedDict("QueuePriority", {"name": str, "value": int, "isDefault": bool})
Ranks = TypedDict("Ranks", {"priorities": list[QueuePriority]})

# ---------------------------------------------------------------- clusters and nodes

ClusterStatus = TypedDict("ClusterStatus", {"state": str, "conditions": list[Json]})
Cluster = TypedDict("Cluster", {
    "uuid": str, "tenantId": int, "name": str, "createdAt": Time, "updatedAt": Time, "deletedAt": Time | None,
    "deleteRequestedAt": Time | None, "lastLiveness": Time, "domain": str | None, "version": str, "status": ClusterStatus,
})  # fmt: skip
Clusters = list[Cluster]
PlacementStrategy = TypedDict("PlacementStrategy", {"cpu": str, "gpu": str})
NodePool = TypedDict("NodePool", {
    "id": str, "name": str, "labelKey": str, "labelValue": str, "clusterId": str, "clusterName": str, "tenantId": int,
    "isDefault": bool, "phase": Literal["Ready", "Empty", "Unschedulable"], "phaseMessage": str, "overProvisioningRatio": int,
    "placementStrategy": PlacementStrategy, "createdBy": str, "createdAt": Time, "updatedBy": str, "updatedAt": Time,
    "deletedAt": Time | None, "deletedBy": str | None, "nodes": list[str],
})  # fmt: skip
NodePools = TypedDict("NodePools", {"nodepools": list[NodePool], "next": NotRequired[int]})
NodeCondition = TypedDict("NodeCondition", {"type": str, "reason": str, "message": str})
Taint = TypedDict("Taint", {"key": str, "value": str, "effect": str})
GpuInfo = TypedDict("GpuInfo", {"gpuType": str, "gpuCount": int})
Node = TypedDict("Node", {
    "id": str, "name": str, "status": Literal["Ready", "NotReady", "Unknown"], "conditions": list[NodeCondition],
    "taints": list[Taint], "nodePool": str, "gpuInfo": GpuInfo | None, "gpusSimulated": bool, "nvLinkDomainUid": str | None,
    "nvLinkCliqueId": str | None, "clusterUuid": str, "createdAt": Time, "updatedAt": Time,
})  # fmt: skip
Nodes = TypedDict("Nodes", {"nodes": list[Node], "next": NotRequired[int]})
TelemetryGroup = TypedDict("TelemetryGroup", {"key": str, "value": str})
TelemetryValue = TypedDict("TelemetryValue", {"value": str, "groups": list[TelemetryGroup]})
Telemetry = TypedDict("Telemetry", {"type": str, "timestamp": Time, "values": list[TelemetryValue]})

# ---------------------------------------------------------------- the scheduler

CardHolder = TypedDict("CardHolder", {
    "pod": str, "namespace": str, "projectName": str, "workloadId": str, "workloadName": str, "leaving": bool, "share": float,
})  # fmt: skip
TopologyLabel = TypedDict("TopologyLabel", {"label": str, "value": str})
Card = TypedDict("Card", {
    "index": int, "allocated": float, "holders": list[CardHolder], "usedMemory": int | None, "utilization": float | None,
    "idleSeconds": int | None,
})  # fmt: skip
"""`usedMemory` in MiB, `utilization` in percent; null where they are not measured."""
NodeCards = TypedDict("NodeCards", {
    "name": str, "status": str, "unschedulable": bool, "nodePool": str, "gpuType": str, "gpusSimulated": bool,
    "cardMemory": int, "allocated": float, "clusterUuid": str, "createdAt": Time | None, "readyGpus": int, "totalGpus": int,
    "cpu": float, "allocatedCpu": float, "memory": int, "allocatedMemory": int, "pods": int, "nvLinkDomainUid": str | None,
    "nvLinkCliqueId": str | None, "topology": list[TopologyLabel], "cards": list[Card], "elsewhere": list[CardHolder],
})  # fmt: skip
"""CPUs in cores, memory in bytes."""
Cards = TypedDict("Cards", {"nodes": list[NodeCards]})
NodeAllocation = TypedDict("NodeAllocation", {
    "name": str, "status": str, "address": str, "nodePool": str, "gpuType": str, "gpus": int, "gpusSimulated": bool,
    "allocatedGpus": float, "gpuMemory": int, "cpu": str, "allocatedCpu": float, "memory": str, "allocatedMemory": str,
    "createdAt": Time | None, "pods": int,
})  # fmt: skip
Allocations = TypedDict("Allocations", {"nodes": list[NodeAllocation]})
WaitingGang = TypedDict("WaitingGang", {"position": int, "workloadId": str, "name": str, "projectName": str, "hint": str})  # fmt: skip
ProjectNotify = TypedDict("ProjectNotify", {
    "projectName": str, "target": str, "on": list[str], "signed": bool, "setAt": Time | None, "problem": str,
})  # fmt: skip
"""Where a project tells what happens to its jobs; `target` is "" if nowhere."""
MovedGang = TypedDict("MovedGang", {"name": str, "projectName": str, "priority": int, "order": list[str]})
EndingPods = TypedDict("EndingPods", {"endingPods": list[str]})
WaitingOrder = TypedDict("WaitingOrder", {"isOrdered": bool, "total": int, "waiting": list[WaitingGang]})
GangName = TypedDict("GangName", {"workloadId": str, "name": str, "projectName": str, "pods": int})


class YieldingGang(GangName):
    """A gang that would give its nodes back, and by which action of the scheduler."""

    action: str


FairShare = TypedDict("FairShare", {"projectId": str, "gpu": float})
QuotaOutcome = TypedDict("QuotaOutcome", {
    "starts": list[GangName], "startsAfter": list[GangName], "waits": list[GangName], "yields": list[YieldingGang],
    "total": int, "fairShares": list[FairShare],
})  # fmt: skip
Outcomes = TypedDict("Outcomes", {"outcomes": list[Json]})
CheckResult = TypedDict("CheckResult", {"kind": str, "name": str, "refused": str, "hint": str, "remarks": list[Any]})
CheckResults = TypedDict("CheckResults", {"results": list[CheckResult]})

# ---------------------------------------------------------------- words, and answers of many routes

WorkloadType = TypedDict("WorkloadType", {
    "id": str, "name": str, "group": str, "categoryId": str, "categoryName": str, "category": str, "priorityId": str,
    "priorityName": str,
})  # fmt: skip
WorkloadTypes = TypedDict("WorkloadTypes", {"types": list[WorkloadType]})
Priority = TypedDict("Priority", {"id": str, "name": str, "value": int})
Priorities = TypedDict("Priorities", {"priorities": list[Priority]})
Categories = TypedDict("Categories", {"categories": list[Reference]})
ComplianceIssue = TypedDict("ComplianceIssue", {"field": str, "details": str, "rule": str})
Error = TypedDict("Error", {"code": int, "message": str, "details": str, "complianceIssues": NotRequired[list[ComplianceIssue]]})  # fmt: skip
Accepted = TypedDict("Accepted", {"code": int, "message": str})
Count = TypedDict("Count", {"count": int})
