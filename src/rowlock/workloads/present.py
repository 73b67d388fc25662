"""Objects → Run:ai's Workload, WorkloadDetailed and DistributedWorkload JSON.

Every field that the published models require is always there with its exact type. What Run:ai's shape has no place
for, but our command lines show, is in `additionalFields`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.scheduling.reading import PRIORITIES
from rowlock.scheduling.requests import pool_of
from rowlock.workloads import compute, frameworks, pods, spec
from rowlock.workloads import objects as made
from rowlock.workloads.phase import TERMINAL, Standing, standing, tally
from rowlock.workloads.projects import Project

TENANT = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything about one workload: the job, its pods in rank order, its pod group, and its project."""

    job: Object
    pods: Sequence[Object]
    group: Object | None
    project: Project
    cluster: str
    said: Callable[[str, str], str] | None = None
    """What the inquest says of a job (its uid) in a phase: who failed first, who keeps the others waiting; or ""."""

    def standing(self) -> Standing:
        """The phase; its sentence is the inquest's where that knows better than the objects do."""
        now = standing(self.job, self.pods, self.group)
        word = self.said(objects.uid(self.job), now.phase) if self.said is not None else ""
        return replace(now, message=word) if word else now


def workload_id(job: Object) -> str:
    """The id that REST uses: the one given at submit, or the uid of a job that came through kubectl."""
    return objects.labels(job).get(made.WORKLOAD_ID) or objects.uid(job)


def created_at(job: Object) -> str:
    return str(objects.meta(job).get("creationTimestamp") or "")


def framework_name(job: Object) -> str:
    kind = kinds.by_api_version(str(job.get("apiVersion")), str(job.get("kind")))
    found = frameworks.by_kind(kind) if kind else None
    return found.name if found else str(job.get("kind", "")).removesuffix("Job")


def pool(job: Object) -> str:
    """The node pool that it lives in."""
    return pool_of(job) or "default"


def priority_class(job: Object) -> str:
    return objects.labels(job).get("priorityClassName") or "low"


def preemptible(job: Object) -> bool:
    word = objects.labels(job).get("kai.scheduler/preemptibility")
    values = {**PRIORITIES, **spec.PRIORITIES}
    return word == "preemptible" if word else values.get(priority_class(job), 40) < 100


def creator(job: Object) -> str:
    annotations = objects.annotations(job)
    return annotations.get(made.CREATED_BY) or objects.labels(job).get("user") or ""


def present(workload: Workload) -> dict[str, Any]:
    """A list item of `GET /api/v1/workloads`."""
    job, now = workload.job, workload.standing()
    return {
        **_identity(workload),
        **_times(job, now),
        "phase": now.phase,
        "phaseMessage": now.message,
        "phaseReason": now.reason or None,
        "k8sPhase": _last_condition(job),
        "conditions": _conditions(job),
        "actionsSupport": {"delete": True, "suspend": now.phase not in TERMINAL},
        "requestedNodePools": [pool(job)],
        "currentNodePools": [pool(job)] if any(objects.dig(p, "spec.nodeName") for p in workload.pods) else [],
        **_amounts(workload, now),
        **_content(workload),
        "additionalFields": _additional(workload, now),
    }


def _identity(workload: Workload) -> dict[str, Any]:
    job, project = workload.job, workload.project
    source = objects.annotations(job).get(made.SOURCE, "Other")
    return {
        "id": workload_id(job),
        "name": objects.name(job),
        "type": "Distributed",
        "distributedFramework": framework_name(job),
        "tenantId": TENANT,
        "clusterId": workload.cluster,
        "projectId": project.id,
        "projectName": project.name,
        "departmentId": project.department,
        "departmentName": project.department,
        "namespace": project.namespace,
        "source": source,
        "submittedBy": creator(job),
        "category": "Train",
        "priority": spec.PRIORITIES.get(priority_class(job)),
        "priorityClassName": priority_class(job),
        "preemptible": preemptible(job),
        "sourceApi": source,
    }


def _times(job: Object, now: Standing) -> dict[str, Any]:
    created = created_at(job)
    return {
        "createdAt": created,
        "updatedAt": now.since or created,
        "deletedAt": objects.meta(job).get("deletionTimestamp"),
        "completedAt": completed_at(job),
        "phaseUpdatedAt": now.since or created,
        "k8sPhaseUpdatedAt": now.since or created,
    }


def completed_at(job: Object) -> str | None:
    if found := objects.dig(job, "status.completionTime"):
        return str(found)
    failed = objects.condition(job, "Failed") or {}
    return str(failed["lastTransitionTime"]) if failed.get("status") == "True" else None


def _last_condition(job: Object) -> str:
    conditions = objects.dig(job, "status.conditions", [])
    return str(conditions[-1].get("type")) if conditions else "Pending"


def _conditions(job: Object) -> list[dict[str, Any]]:
    names = ("type", "status", "message", "reason", "lastTransitionTime")
    return [{n: c.get(n) for n in names} for c in objects.dig(job, "status.conditions", [])]


def _amounts(workload: Workload, now: Standing) -> dict[str, Any]:
    counts, wanted = tally(workload.pods), frameworks.wanted_pods(workload.job)
    asked = requested_gpus(workload.job)
    per_pod = max((compute.of_pod(t) for t, _ in templates(workload.job)), default=Decimal(0))
    elastic = objects.dig(workload.job, "spec.elasticPolicy", {})
    return {
        "runningPods": counts.running,
        "requestedPods": {"number": wanted, "min": elastic.get("minReplicas"), "max": elastic.get("maxReplicas")},
        "workloadRequestedResources": {"gpu": {"request": number(asked)}},
        "podsRequestedResources": {"gpu": {"request": number(per_pod)}},
        "allocatedResources": {"gpu": number(allocated_gpus(workload, now.phase))},
    }


def templates(job: Object) -> list[tuple[Object, int]]:
    """The pod templates with how many pods are made of each."""
    found = frameworks.replica_specs(job).values()
    return [(r.get("template") or {}, 1 if r.get("replicas") is None else int(r["replicas"])) for r in found]


def requested_gpus(job: Object) -> Decimal:
    return sum((compute.of_pod(template) * count for template, count in templates(job)), Decimal(0))


def allocated_gpus(workload: Workload, phase: str) -> Decimal:
    """GPUs held now: those of bound pods that have not ended."""
    held = [p for p in workload.pods if objects.dig(p, "spec.nodeName") and objects.phase(p) in ("Pending", "Running")]
    return sum((compute.of_pod(p) for p in held), Decimal(0))


def number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _content(workload: Workload) -> dict[str, Any]:
    container = _main_container(workload.job)
    images = {c.get("image", "") for t, _ in templates(workload.job) for c in objects.dig(t, "spec.containers", [])}
    return {
        "images": sorted(images),
        "command": container.get("command") or [],
        "arguments": container.get("args") or [],
        "environmentVariables": {v["name"]: v["value"] for v in container.get("env") or [] if "value" in v},
        "urls": [],
        "datasources": [],
        "environments": [],
        "externalConnections": [],
        "childrenIds": [{"id": objects.uid(workload.job), "type": workload.job.get("kind")}],
    }


def _main_container(job: Object) -> dict[str, Any]:
    containers = [c for t, _ in templates(job)[:1] for c in objects.dig(t, "spec.containers", [])]
    return containers[0] if containers else {}


def _additional(workload: Workload, now: Standing) -> dict[str, Any]:
    counts = tally(workload.pods)
    first = pods.chief(workload.pods)
    bound = {str(objects.dig(p, "spec.nodeName")) for p in workload.pods if objects.dig(p, "spec.nodeName")}
    return {
        "status": now.status,
        "pendingPods": counts.pending,
        "succeededPods": counts.succeeded,
        "failedPods": counts.failed,
        "nodes": sorted(bound),
        "chief": objects.name(first) if first else "",
        "commandLine": objects.annotations(workload.job).get(made.COMMAND, ""),
        "startedAt": objects.dig(workload.job, "status.startTime"),
        "kind": workload.job.get("kind"),
        "image": _main_container(workload.job).get("image", ""),
    }


def detailed(workload: Workload) -> dict[str, Any]:
    """`GET /api/v1/workloads/{id}`: the list item and why it waits."""
    body = present(workload)
    waiting = body["phase"] in ("Pending", "Creating") and body["phaseMessage"]
    message = {
        "nodePool": pool(workload.job),
        "phaseReason": body["phaseReason"],
        "reason": body["phaseReason"],
        "orgType": "PROJECT",
        "userMessage": body["phaseMessage"],
    }
    return {**body, "pendingSchedulingMessages": [message] if waiting else []}


def distributed(workload: Workload) -> dict[str, Any]:
    """`GET /api/v1/workloads/distributed/{id}`, and the answer to a submit."""
    job = workload.job
    kept = objects.annotations(job).get(made.REQUEST)
    asked: dict[str, Any] = json.loads(kept) if kept else {}
    suspended = bool(objects.dig(job, "spec.runPolicy.suspend", False))
    desired = "Deleted" if objects.deleting(job) else "Stopped" if suspended else "Running"
    return {
        "name": objects.name(job),
        "requestedName": asked.get("name") or objects.name(job),
        "workloadId": workload_id(job),
        "projectId": workload.project.id,
        "departmentId": workload.project.department,
        "clusterId": workload.cluster,
        "createdBy": creator(job),
        "createdAt": created_at(job),
        "deletedAt": objects.meta(job).get("deletionTimestamp"),
        "desiredPhase": desired,
        "actualPhase": workload.standing().phase,
        "spec": asked.get("spec") or _spec_of(job),
        "masterSpecSameAsWorker": asked.get("masterSpecSameAsWorker"),
        "masterSpec": asked.get("masterSpec"),
    }


def _spec_of(job: Object) -> dict[str, Any]:
    """What a job that came through kubectl would have asked for here."""
    container = _main_container(job)
    workers = frameworks.replica_specs(job).get("Worker") or {}
    return {
        "image": container.get("image"),
        "command": " ".join(container.get("command") or []) or None,
        "args": " ".join(container.get("args") or []) or None,
        "numWorkers": workers.get("replicas", 1),
        "distributedFramework": framework_name(job),
    }
