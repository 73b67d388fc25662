"""The schemas of answers, by name. `tests/rest/test_openapi.py` checks every route against them."""

from __future__ import annotations

from rowlock.rest.openapi.asset_schemas import credential_answers, user_credential_answers
from rowlock.rest.openapi.vocabulary import (
    ANYTHING,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    choice,
    list_of,
    nullable,
    page_of,
    record,
    ref,
    with_optional,
)
from rowlock.workloads.figures.overtime import FIGURES, RANGES
from rowlock.workloads.phase import V1_STATUSES

_PHASE = choice(*sorted({*V1_STATUSES, "Deleted"}))
_STOPS = list_of(record(pod=TEXT, at=TEXT, sentence=TEXT, count=WHOLE))
_CORES = record(request=nullable(NUMBER), limit=nullable(NUMBER))
_AMOUNT = record(request=nullable(TEXT), limit=nullable(TEXT))
_REFERENCES = list_of(with_optional(record(id=TEXT, name=TEXT), type=TEXT))
_AUTHOR: dict[str, Schema] = {"createdBy": TEXT, "createdAt": TIME, "updatedBy": TEXT, "updatedAt": TIME}

_IDENTITY: dict[str, Schema] = {
    "name": TEXT, "requestedName": TEXT, "workloadId": TEXT, "projectId": TEXT, "departmentId": TEXT, "clusterId": TEXT,
    "createdBy": TEXT, "createdAt": TIME, "deletedAt": nullable(TIME),
    "desiredPhase": choice("Running", "Stopped", "Deleted"), "actualPhase": _PHASE, "spec": OBJECT,
}  # fmt: skip
_WORKLOAD: dict[str, Schema] = {
    "id": TEXT, "name": TEXT, "type": choice("Distributed", "Training", "Workspace"), "distributedFramework": TEXT,
    "tenantId": WHOLE, "clusterId": TEXT, "projectId": TEXT, "projectName": TEXT, "departmentId": TEXT,
    "departmentName": TEXT, "namespace": TEXT, "source": choice("CLI", "Control-plane", "Other"), "submittedBy": TEXT,
    "category": TEXT, "priority": nullable(WHOLE), "priorityClassName": TEXT, "preemptible": FLAG,
    "sourceApi": nullable(TEXT), "aiApplicationId": nullable(TEXT), "aiApplicationName": nullable(TEXT),
    "guaranteedRuntimeEndsAt": nullable(TIME), "idleGpus": nullable(WHOLE), "idleAllocatedGpus": nullable(WHOLE), "createdAt": TIME, "updatedAt": TIME, "deletedAt": nullable(TIME),
    "completedAt": nullable(TIME), "phaseUpdatedAt": TIME, "k8sPhaseUpdatedAt": TIME,
    "totalPendingTimeSeconds": nullable(WHOLE), "totalRunningTimeSeconds": nullable(WHOLE), "phase": _PHASE,
    "phaseMessage": TEXT, "phaseReason": nullable(TEXT), "k8sPhase": TEXT, "conditions": list_of(ref("Condition")),
    "actionsSupport": record(delete=FLAG, suspend=FLAG), "requestedNodePools": list_of(TEXT),
    "currentNodePools": list_of(TEXT), "runningPods": WHOLE,
    "requestedPods": record(
        number=WHOLE, min=nullable(WHOLE), max=nullable(WHOLE), parallelism=nullable(WHOLE), completions=nullable(WHOLE)
    ),
    "workloadRequestedResources": ref("RequestedResources"), "podsRequestedResources": ref("RequestedResources"),
    "allocatedResources": ref("AllocatedResources"), "images": list_of(TEXT), "command": TEXT, "arguments": TEXT,
    "environmentVariables": OBJECT, "urls": list_of(TEXT), "datasources": _REFERENCES, "environments": _REFERENCES,
    "externalConnections": list_of(OBJECT), "childrenIds": list_of(record(id=TEXT, type=TEXT)),
    "additionalFields": OBJECT,
}  # fmt: skip
_RUN: dict[str, Schema] = {
    "id": TEXT, "name": TEXT, "projectName": TEXT, "kind": TEXT, "createdAt": TIME, "finishedAt": nullable(TIME),
    "deletedAt": nullable(TIME), "phase": TEXT, "attempts": WHOLE, "verdict": TEXT, "durationSeconds": nullable(NUMBER),
}  # fmt: skip
_QUOTA: dict[str, Schema] = {"deserved": NUMBER, "limit": NUMBER, "overQuotaWeight": NUMBER}
_USED: Schema = record(**{name: nullable(NUMBER) for name in (
    "cpuCores", "memoryBytes", "diskReadBytes", "diskWriteBytes", "netReceiveBytes", "netTransmitBytes", "gpuMemoryBytes",
    "gpuUtilization",
)})  # fmt: skip
_WORKLOAD_USAGE: dict[str, Schema] = {
    "id": TEXT, "name": TEXT, "projectName": TEXT, "phase": _PHASE, "podCount": WHOLE, "gpus": NUMBER, "usage": _USED,
    "idleSeconds": nullable(WHOLE),
}  # fmt: skip
_OVERTIME = nullable(record(**{
    name: record(**{figure: nullable(NUMBER) for figure in FIGURES}, updatedAt=nullable(TIME)) for name in RANGES
}))  # fmt: skip
_USAGE = record(gpu=NUMBER, cpu=NUMBER, memory=NUMBER)

_POLICY_META = record(
    id=TEXT, tenantId=WHOLE, name=TEXT, scope=TEXT, clusterId=TEXT, projectId=nullable(WHOLE), projectName=nullable(TEXT),
    departmentId=nullable(TEXT), **_AUTHOR,
)  # fmt: skip
_ASSET_META = with_optional(
    record(
        id=TEXT, kind=TEXT, name=TEXT, description=nullable(TEXT), scope=TEXT, clusterId=nullable(TEXT),
        departmentId=nullable(TEXT), projectId=nullable(WHOLE), projectName=nullable(TEXT), tenantId=WHOLE,
        private=FLAG, autoDelete=FLAG, **_AUTHOR,
    ),
    workloadSupportedTypes=OBJECT,
)  # fmt: skip
ANSWERS: dict[str, Schema] = {
    "Error": with_optional(
        record(code=WHOLE, message=TEXT, details=TEXT),
        complianceIssues=list_of(record(field=TEXT, details=TEXT, rule=TEXT)),
    ),
    "ManifestWorkload": record(
        metadata=record(
            name=TEXT, projectId=TEXT, priority=TEXT, category=TEXT, preemptibility=TEXT, id=TEXT,
            gvk=record(group=TEXT, version=TEXT, kind=TEXT), projectName=TEXT, clusterId=TEXT, tenantId=WHOLE,
            departmentId=TEXT, departmentName=TEXT, createdAt=TIME, createdBy=TEXT, updatedAt=TIME, updatedBy=TEXT,
            deletedAt=nullable(TIME), deletedBy=nullable(TEXT),
        ),
        desiredPhase=TEXT, workloadManifest=OBJECT, rawManifest=OBJECT,
    ),
    "SyncedWorkload": record(workload=ref("ManifestWorkload"), syncInfo=record(status=TEXT, message=TEXT)),
    "Accepted": record(code=WHOLE, message=TEXT),
    "Count": record(count=WHOLE),
    "Token": record(accessToken=TEXT, expiresIn=NUMBER, tokenType=TEXT),
    "Condition": record(
        type=nullable(TEXT), status=nullable(TEXT), message=nullable(TEXT), reason=nullable(TEXT),
        lastTransitionTime=nullable(TIME),
    ),
    "RequestedResources": record(
        gpuRequestType=nullable(TEXT), gpu=_CORES, gpuMemory=_AMOUNT, cpu=_CORES, cpuMemory=_AMOUNT,
        extendedResources=list_of(record(resource=TEXT, quantity=TEXT)),
    ),
    "AllocatedResources": record(
        gpu=NUMBER, gpuMemory=TEXT, cpu=NUMBER, cpuMemory=TEXT, extendedResources=list_of(OBJECT)
    ),
    "DistributedWorkload": record(**_IDENTITY, masterSpecSameAsWorker=nullable(FLAG), masterSpec=nullable(OBJECT)),
    "StandardWorkload": record(**_IDENTITY),
    "Workload": record(**_WORKLOAD),
    "WorkloadDetailed": record(**_WORKLOAD, pendingSchedulingMessages=list_of(OBJECT)),
    "AwaitedWorkload": record(**_WORKLOAD, pendingSchedulingMessages=list_of(OBJECT), reachedPhase=nullable(_PHASE)),
    "Workloads": page_of("workloads", "Workload"),
    "Batch": record(
        id=TEXT, succeeded=list_of(TEXT), failed=list_of(record(id=TEXT, code=WHOLE, message=TEXT))
    ),
    "Pod": record(
        name=TEXT, id=TEXT, workloadId=TEXT, workloadName=TEXT, clusterId=TEXT, projectId=TEXT, projectName=TEXT,
        tenantId=WHOLE, priorityClassName=TEXT, createdAt=TIME, updatedAt=TIME, completedAt=nullable(TIME),
        deletedAt=nullable(TIME), k8sPhase=TEXT, k8sPhaseUpdatedAt=TIME, nodeName=nullable(TEXT), ip=nullable(TEXT),
        hostIp=nullable(TEXT), containers=list_of(record(name=TEXT, image=TEXT, startedAt=nullable(TIME))),
        currentNodePool=TEXT, requestedNodePools=list_of(TEXT), requestedResources=ref("RequestedResources"),
        allocatedResources=ref("AllocatedResources"), tolerations=list_of(OBJECT), nodeAffinity=nullable(OBJECT),
        revisionId=nullable(TEXT), status=TEXT, ready=FLAG, role=TEXT, index=WHOLE, restarts=WHOLE,
        exitCode=nullable(WHOLE), message=TEXT, rank=TEXT, launchedRanks=nullable(record(first=WHOLE, count=WHOLE)),
    ),
    "Pods": page_of("pods", "Pod"),
    "Structure": record(
        objects=list_of(record(id=TEXT, owner=nullable(TEXT), kind=TEXT, name=TEXT, status=TEXT))
    ),
    "Event": record(
        id=TEXT, createdAt=TIME, type=TEXT, clusterId=TEXT, message=TEXT, reason=TEXT, source=TEXT, count=WHOLE,
        involvedObject=record(uid=TEXT, kind=TEXT, name=TEXT, namespace=TEXT),
    ),
    "Events": page_of("events", "Event"),
    "HistoryRecord": record(
        meta=record(creationTimestamp=TIME, type=choice("Event", "PhaseUpdate")),
        spec={"type": "object", "properties": {
            "event": ref("Event"), "phaseUpdate": record(phase=TEXT, phaseMessage=TEXT)}},
    ),
    "History": page_of("records", "HistoryRecord"),
    "Metrics": record(
        measurements=list_of(record(type=TEXT, labels=OBJECT, values=list_of(record(value=TEXT, timestamp=TIME))))
    ),
    "Usage": record(
        measured=FLAG, workloads=list_of(record(**_WORKLOAD_USAGE)),
        nodes=list_of(record(
            name=TEXT, cpuCores=nullable(NUMBER), memoryBytes=nullable(NUMBER), gpus=NUMBER, pods=WHOLE, usage=_USED)),
    ),
    "WorkloadUsage": record(
        measured=FLAG, **_WORKLOAD_USAGE,
        pods=list_of(record(
            name=TEXT, rank=TEXT, node=TEXT, phase=TEXT, gpus=NUMBER, usage=_USED,
            perGpu=list_of(record(gpu=TEXT, gpuUtilization=nullable(NUMBER), gpuMemoryBytes=nullable(NUMBER))))),
    ),
    "Explanation": record(
        name=TEXT, projectName=TEXT, phase=_PHASE, since=TEXT, reason=TEXT, message=TEXT, podGroup=TEXT,
        minMember=nullable(WHOLE), queue=TEXT, record=OBJECT, evicted=nullable(ref("Event")),
        warnings=list_of(ref("Event")), heldBy=TEXT,
        holders=list_of(record(
            projectName=TEXT, workloadId=TEXT, workloadName=TEXT, phase=TEXT, gpus=NUMBER, pods=WHOLE)),
    ),
    "Diagnosis": record(
        name=TEXT, phase=_PHASE, sentence=TEXT, incidents=list_of(OBJECT), verdict=nullable(OBJECT), ranks=list_of(OBJECT),
        ends=_STOPS,
        remarks=list_of(record(kind=TEXT, sentence=TEXT)),
    ),
    "RunHeader": record(**_RUN),
    "Runs": with_optional(record(runs=list_of(ref("RunHeader")), cut=TEXT, problem=TEXT), next=WHOLE),
    "Run": record(
        **_RUN, phases=list_of(record(at=TIME, phase=TEXT, message=TEXT)), ranks=list_of(OBJECT), why=nullable(OBJECT),
        events=WHOLE, ends=_STOPS, checkpointsOf=TEXT, ran=OBJECT, manifest=OBJECT,
    ),
    "Curves": record(
        rank=TEXT, curves=list_of(record(metric=TEXT, axis=TEXT, points=list_of(list_of(ANYTHING)))), notes=list_of(TEXT)
    ),
    "EventFiles": record(files=list_of(record(path=TEXT, place=TEXT, begunAt=TIME))),
    "Resources": record(
        nodePool=record(id=TEXT, name=TEXT), gpu=record(**_QUOTA), cpu=record(**_QUOTA),
        memory=record(**_QUOTA, units=TEXT), priority=TEXT,
    ),
    "TotalResources": record(gpuQuota=NUMBER, cpuQuota=NUMBER, memoryQuota=NUMBER),
    "QuotaStatus": record(allocated=_USAGE, allocatedNonPreemptible=_USAGE, requested=_USAGE, fairShare=_USAGE),
    "Project": record(
        id=TEXT, name=TEXT, clusterId=TEXT, parentId=TEXT, description=TEXT,
        status=record(
            namespace=TEXT, phase=choice("Ready", "NotReady", "Deleting"), phaseMessage=TEXT,
            quotaStatus=ref("QuotaStatus"), nodePoolQuotaStatuses=list_of(OBJECT),
        ),
        totalResources=ref("TotalResources"), resources=list_of(ref("Resources")), effective=OBJECT,
        enforceRunaiScheduler=FLAG, parent=record(id=TEXT, name=TEXT, type=TEXT), defaultNodePools=list_of(TEXT),
        nodeTypes=nullable(OBJECT), schedulingRules=nullable(OBJECT), overtimeData=_OVERTIME, createdAt=TIME, updatedAt=TIME,
    ),
    "Projects": page_of("projects", "Project"),
    "Department": record(
        id=TEXT, name=TEXT, clusterId=TEXT, description=TEXT, createdAt=TIME, updatedAt=TIME, createdBy=nullable(TEXT),
        updatedBy=nullable(TEXT), children=list_of(record(id=TEXT, name=TEXT)),
        status=record(quotaStatus=ref("QuotaStatus")), totalResources=ref("TotalResources"),
        resources=list_of(ref("Resources")), defaultNodePools=list_of(TEXT), nodeTypes=nullable(OBJECT),
        schedulingRules=nullable(OBJECT), overtimeData=_OVERTIME,
    ),
    "Departments": page_of("departments", "Department"),
    "Ranks": record(priorities=list_of(record(name=TEXT, value=WHOLE, isDefault=FLAG))),
    "Cluster": record(
        uuid=TEXT, tenantId=WHOLE, name=TEXT, createdAt=TIME, updatedAt=TIME, deletedAt=nullable(TIME),
        deleteRequestedAt=nullable(TIME), lastLiveness=TIME, domain=nullable(TEXT), version=TEXT,
        status=record(state=TEXT, conditions=list_of(OBJECT)),
    ),
    "Clusters": list_of(ref("Cluster")),
    "NodePool": record(
        id=TEXT, name=TEXT, labelKey=TEXT, labelValue=TEXT, clusterId=TEXT, clusterName=TEXT, tenantId=WHOLE,
        isDefault=FLAG, phase=choice("Ready", "Empty", "Unschedulable"), phaseMessage=TEXT, overProvisioningRatio=WHOLE,
        placementStrategy=record(cpu=TEXT, gpu=TEXT), **_AUTHOR, deletedAt=nullable(TIME), deletedBy=nullable(TEXT),
        nodes=list_of(TEXT),
    ),
    "NodePools": page_of("nodepools", "NodePool"),
    "Node": record(
        id=TEXT, name=TEXT, status=choice("Ready", "NotReady", "Unknown"),
        conditions=list_of(record(type=TEXT, reason=TEXT, message=TEXT)),
        taints=list_of(record(key=TEXT, value=TEXT, effect=TEXT)), nodePool=TEXT,
        gpuInfo=nullable(record(gpuType=TEXT, gpuCount=WHOLE)), gpusSimulated=FLAG, nvLinkDomainUid=nullable(TEXT),
        nvLinkCliqueId=nullable(TEXT), clusterUuid=TEXT, createdAt=TIME, updatedAt=TIME,
    ),
    "Nodes": page_of("nodes", "Node"),
    "Asset": record(meta=_ASSET_META, spec=OBJECT),
    **credential_answers(_ASSET_META),
    **user_credential_answers(),
    "Assets": record(entries=list_of(ref("Asset"))),
    "Template": record(
        meta=record(
            id=TEXT, name=TEXT, description=nullable(TEXT), workloadType=TEXT, scopeType=TEXT, scopeId=TEXT,
            clusterId=TEXT, departmentId=nullable(TEXT), projectId=nullable(WHOLE), **_AUTHOR,
        ),
        spec=OBJECT, assets=nullable(OBJECT), masterSpecSameAsWorker=nullable(FLAG), master=nullable(OBJECT),
        runnable=record(isRunnable=FLAG, issue=nullable(TEXT)), combinedSpec=OBJECT, combinedMasterSpec=nullable(OBJECT),
    ),
    "Templates": record(
        entries=list_of(ref("Template")), pagination=record(limit=WHOLE, offset=WHOLE, nextOffset=nullable(WHOLE))
    ),
    "Telemetry": record(type=TEXT, timestamp=TIME, values=list_of(
        record(value=TEXT, groups=list_of(record(key=TEXT, value=TEXT))))),
    "Policy": record(meta=_POLICY_META, policy=OBJECT, effective=OBJECT, effectiveUpdatedAt=TIME),
    "Policies": record(policies=list_of(record(type=TEXT, meta=_POLICY_META, status=OBJECT))),
    "Availability": record(available=FLAG),
    "Application": record(
        id=TEXT, name=TEXT, clientId=TEXT, enabled=FLAG, user=TEXT, createdAt=TIME, createdBy=TEXT
    ),
    "NewApplication": record(
        id=TEXT, name=TEXT, clientId=TEXT, enabled=FLAG, user=TEXT, createdAt=TIME, createdBy=TEXT, clientSecret=TEXT
    ),
    "Applications": record(applications=list_of(ref("Application"))),
    "User": with_optional(
        record(
            id=TEXT, userId=TEXT, username=TEXT, email=TEXT, entityType=TEXT, createdAt=TIME, updatedAt=TIME, createdBy=TEXT,
            tenantId=WHOLE, lastLogin=nullable(TIME), isLocal=FLAG, groups=list_of(TEXT),
        ),
        tempPassword=TEXT,
    ),
    "Users": list_of(ref("User")),
    "Me": record(username=TEXT, groups=list_of(TEXT), isLocalAccount=FLAG),
    "Role": record(
        id=WHOLE, name=TEXT, description=TEXT, enabled=FLAG, effectiveEnabled=FLAG, custom=FLAG, createdAt=TIME, updatedAt=TIME,
        deletedAt=nullable(TIME), createdBy=TEXT, permissions=list_of(OBJECT), clusterRole=TEXT,
    ),
    "Roles": list_of(ref("Role")),
    "AccessRule": record(
        id=WHOLE, subjectId=TEXT, subjectType=TEXT, roleId=WHOLE, roleName=TEXT, scopeId=TEXT, scopeName=TEXT, scopeType=TEXT,
        clusterId=TEXT, tenantId=WHOLE, createdAt=TIME, updatedAt=TIME, deletedAt=nullable(TIME), createdBy=TEXT, status=OBJECT,
        binding=TEXT,
    ),
    "AccessRules": with_optional(
        record(accessRules=list_of(ref("AccessRule")), totalRecords=WHOLE, displayRecords=WHOLE), next=WHOLE
    ),
    "MyAccessRules": record(accessRules=ref("AccessRules")),
    "WorkloadTypes": record(
        types=list_of(record(
            id=TEXT, name=TEXT, group=TEXT, categoryId=TEXT, categoryName=TEXT, category=TEXT, priorityId=TEXT,
            priorityName=TEXT,
        ))
    ),
    "Priorities": record(priorities=list_of(record(id=TEXT, name=TEXT, value=WHOLE))),
    "Categories": record(categories=list_of(record(id=TEXT, name=TEXT))),
    "CardHolder": record(
        pod=TEXT, namespace=TEXT, projectName=TEXT, workloadId=TEXT, workloadName=TEXT, leaving=FLAG, share=NUMBER
    ),
    "NodeCards": record(
        name=TEXT, status=TEXT, unschedulable=FLAG, nodePool=TEXT, gpuType=TEXT, gpusSimulated=FLAG, cardMemory=WHOLE, allocated=NUMBER,
        clusterUuid=TEXT, createdAt=nullable(TIME), readyGpus=WHOLE, totalGpus=WHOLE, cpu=NUMBER, allocatedCpu=NUMBER,
        memory=WHOLE, allocatedMemory=WHOLE, pods=WHOLE, nvLinkDomainUid=nullable(TEXT), nvLinkCliqueId=nullable(TEXT),
        topology=list_of(record(label=TEXT, value=TEXT)),
        cards=list_of(record(
            index=WHOLE, allocated=NUMBER, holders=list_of(ref("CardHolder")), usedMemory=nullable(WHOLE),
            utilization=nullable(NUMBER), idleSeconds=nullable(WHOLE),
        )),
        elsewhere=list_of(ref("CardHolder")),
    ),
    "Cards": record(nodes=list_of(ref("NodeCards"))),
    "Allocations": record(
        nodes=list_of(record(
            name=TEXT, status=TEXT, address=TEXT, nodePool=TEXT, gpuType=TEXT, gpus=WHOLE, gpusSimulated=FLAG, allocatedGpus=NUMBER, gpuMemory=WHOLE,
            cpu=TEXT, allocatedCpu=NUMBER, memory=TEXT, allocatedMemory=TEXT, createdAt=nullable(TIME), pods=WHOLE,
        ))
    ),
    "WaitingOrder": record(
        isOrdered=FLAG, total=WHOLE,
        waiting=list_of(record(position=WHOLE, workloadId=TEXT, name=TEXT, projectName=TEXT, hint=TEXT)),
    ),
    "WhatIf": record(verdict=TEXT, message=TEXT, hint=TEXT, changes=list_of(TEXT)),
    "GangName": record(workloadId=TEXT, name=TEXT, projectName=TEXT, pods=WHOLE),
    "QuotaOutcome": record(
        starts=list_of(ref("GangName")), startsAfter=list_of(ref("GangName")), waits=list_of(ref("GangName")),
        yields=list_of(record(workloadId=TEXT, name=TEXT, projectName=TEXT, pods=WHOLE, action=TEXT)), total=WHOLE,
        fairShares=list_of(record(projectId=TEXT, gpu=NUMBER)),
    ),
    "Outcomes": record(outcomes=list_of(OBJECT)),
    "Snapshot": OBJECT,
    "CheckResults": record(
        results=list_of(record(kind=TEXT, name=TEXT, refused=TEXT, hint=TEXT, remarks=list_of(ANYTHING)))
    ),
    "OpenAPI": OBJECT,
}  # fmt: skip
