"""Converts objects to Run:ai's Workload, WorkloadDetailed and DistributedWorkload JSON.

Every field that the published models require is always present with its exact type. Values that our command lines show but
Run:ai's models lack are in `additionalFields`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

from rowlock import kinds, objects, submit_fields
from rowlock.answers import Json
from rowlock.answers import workloads as answers
from rowlock.objects import Object
from rowlock.scheduling.model import pod_requests
from rowlock.scheduling.model.from_objects import PRIORITY_CLASS_VALUES
from rowlock.training.model import REQUEST_ANNOTATION, WORKER
from rowlock.workloads import compute, frameworks, pods, submission
from rowlock.workloads import objects as job_objects
from rowlock.workloads.figures import guarantees, times
from rowlock.workloads.figures.resources import allocated_resources, requested_resources
from rowlock.workloads.figures.times import LookUpUsage, count_idle_gpus
from rowlock.workloads.phase import TERMINAL, WorkloadStatus, count_pods, workload_status
from rowlock.workloads.projects import Project

TENANT = 1
PodTemplates = Sequence[tuple[Object, int]]
"""The pod templates of a job, each with its number of pods."""
_PRIORITY_VALUES = {**PRIORITY_CLASS_VALUES, **submission.PRIORITIES}
_PHASE_REASONS = frozenset({"NonPreemptibleOverQuota", "OverLimit"})
"""Values that Run:ai's `phaseReason` may have; every reason is in `additionalFields`."""


HELM_RELEASE, PART_OF = "meta.helm.sh/release-name", "app.kubernetes.io/part-of"
"""Helm's annotation and Kubernetes' label that name the application that an object is a part of."""


def _unknown_card(node: str) -> int:
    return 0


def _no_guarantee(queue: str) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: its job, its pods in rank order, its pod group, its project, and sources of further figures."""

    job: Object
    pods: Sequence[Object]
    group: Object | None
    project: Project
    cluster: str
    card_memory: Callable[[str], int] = _unknown_card
    """Node → MiB of one of its cards; for "" (not placed yet) the smallest card, as in the scheduler. 0 if there is none."""
    clock: Callable[[], float] = lambda: 0.0
    """The current time in Unix seconds, for waiting and running times."""
    diagnose: Callable[[str, str], str] | None = None
    """(job's uid, phase) → the sentence of its diagnosis, such as which rank failed first or keeps the others waiting; "" if there is none."""
    latest_usage: LookUpUsage | None = None
    """Pod's uid → its latest usage; None if usage is not measured."""
    guaranteed_seconds: Callable[[str], float] = _no_guarantee
    """Queue → seconds after its start for which a preemptible gang is protected from preemption."""
    part_uids: Sequence[str] = ()
    """The uids of what stands between a set and its pods: the JobSet of a TrainJob, the Jobs of a set."""

    def status(self) -> WorkloadStatus:
        """The status; its message is the diagnosis, if there is one."""
        status = workload_status(self.job, self.pods, self.group)
        message = self.diagnosis(status.phase)
        return replace(status, message=message) if message else status

    def diagnosis(self, phase: str) -> str:
        """The sentence of the workload's diagnosis in this phase; "" if there is none."""
        return self.diagnose(objects.uid(self.job), phase) if self.diagnose is not None else ""


def workload_id(job: Object) -> str:
    """The workload's id in the REST API: that of the submit, or the uid of a job created with kubectl."""
    return objects.labels(job).get(job_objects.WORKLOAD_ID) or objects.uid(job)


def created_at(job: Object) -> str:
    return str(objects.meta(job).get("creationTimestamp") or "")


def framework_name(job: Object) -> str:
    kind = kinds.by_api_version(str(job.get("apiVersion")), str(job.get("kind")))
    mapping, kind_name = frameworks.by_kind(kind) if kind else None, str(job.get("kind", ""))
    if mapping is not None or kind not in kinds.JOBS:
        return mapping.name if mapping else kind_name
    return kind_name.removesuffix("Job")


def category(job: Object) -> str:
    """Run:ai's category: Build for workspaces, Train for everything else here."""
    return objects.labels(job).get(job_objects.CATEGORY) or "Train"


def workload_type(job: Object) -> answers.WorkloadKind:
    """Training or Workspace for a batch/v1 Job or a lone Master with one pod; Distributed for all other jobs."""
    is_single = frameworks.is_batch_job(job) or set(frameworks.replica_specs(job)) == {"Master"}
    if not is_single or frameworks.desired_pods(job) != 1:
        return "Distributed"
    return "Workspace" if category(job) == "Build" else "Training"


def node_pool_name(job: Object) -> str:
    """The node pool that the job requests."""
    return pod_requests.node_pool(job) or "default"


def priority_class(job: Object) -> str:
    """The priority class by the label of the job or its pods, else by its pod templates, as the scheduler reads it."""
    templates = [template for template, _ in pod_templates(job)]
    fields = (objects.dig(one, "spec.priorityClassName", "") for one in templates)
    names = (*(objects.labels(one).get("priorityClassName") for one in (job, *templates)), *fields, "low")
    return next(str(one) for one in names if one)


def is_preemptible(job: Object) -> bool:
    word = objects.labels(job).get("kai.scheduler/preemptibility")
    return word == "preemptible" if word else _PRIORITY_VALUES.get(priority_class(job), 40) < 100


def creator(job: Object) -> str:
    return objects.annotations(job).get(job_objects.CREATED_BY) or objects.labels(job).get("user") or ""


def ai_application(job: Object, templates: PodTemplates) -> str | None:
    """The AI application that a job is a part of: its Helm release, else the label `PART_OF` of the job or its pods; None if
    neither is set."""
    if release := objects.annotations(job).get(HELM_RELEASE):
        return str(release)
    for marked in (job, *(template for template, _ in templates)):
        if name := objects.labels(marked).get(PART_OF):
            return str(name)
    return None


def guaranteed_until(workload: Workload) -> float | None:
    """Until when a preemptible workload that holds nodes is protected from preemption (Unix seconds); None if there is no
    guarantee, or if it cannot be preempted."""
    seconds = workload.guaranteed_seconds(workload.project.queue)
    if not seconds or not is_preemptible(workload.job) or not _holding_pods(workload):
        return None
    started = guarantees.started_at(workload.group)
    return started + seconds if started else None


@dataclass(frozen=True, slots=True)
class SteadyFields:
    """The parts of a list item that only change with the job, its pods, its pod group, or the cards of nodes."""

    fields: answers.Workload
    """A whole list item, in which the fields that depend on more are empty."""
    status: WorkloadStatus
    """The status derived from the objects, without a diagnosis."""
    milestones: times.Milestones


def workload_json(workload: Workload, steady: SteadyFields | None = None) -> answers.Workload:
    """A list item of `GET /api/v1/workloads`. Callers that convert a workload repeatedly cache its `steady_fields`."""
    known = steady or steady_fields(workload)
    item = known.fields.copy()
    _set_passing_fields(item, workload, known)
    return item


def steady_fields(workload: Workload) -> SteadyFields:
    """The fields of a list item that only change with the workload's objects, or the cards of nodes."""
    job, templates = workload.job, pod_templates(workload.job)
    status = workload_status(job, workload.pods, workload.group)
    pools = [node_pool_name(job)]
    fields: answers.Workload = {
        **_identity_fields(workload, templates),
        **_time_fields(job, status),
        "phase": status.phase,
        "phaseMessage": "",
        "phaseReason": status.reason if status.reason in _PHASE_REASONS else None,
        "k8sPhase": _last_condition(job),
        "conditions": _conditions(job),
        "actionsSupport": {"delete": True, "suspend": status.phase not in TERMINAL},
        "requestedNodePools": pools,
        "currentNodePools": pools if any(objects.dig(p, "spec.nodeName") for p in workload.pods) else [],
        **_resource_fields(workload, templates),
        **_content_fields(workload, templates),
        "additionalFields": _additional_fields(workload, status, templates),
    }
    return SteadyFields(fields, status, times.read_milestones(job))


def _set_passing_fields(item: answers.Workload, workload: Workload, known: SteadyFields) -> None:
    """Set the fields that also depend on the clock, the project, its queue, usage and diagnosis."""
    project, now = workload.project, workload.clock()
    guaranteed = guaranteed_until(workload)
    item["clusterId"] = workload.cluster
    item["projectId"], item["projectName"] = project.id, project.name
    item["departmentId"] = item["departmentName"] = project.department
    item["namespace"] = project.namespace
    item["phaseMessage"] = workload.diagnosis(known.status.phase) or known.status.message
    item["guaranteedRuntimeEndsAt"] = None if guaranteed is None else objects.timestamp(guaranteed)
    item["totalPendingTimeSeconds"] = known.milestones.waiting_seconds(now)
    item["totalRunningTimeSeconds"] = known.milestones.running_seconds(now)
    item["idleGpus"] = item["idleAllocatedGpus"] = count_idle_gpus(workload.pods, workload.latest_usage, now)


def _identity_fields(workload: Workload, templates: PodTemplates) -> answers.WorkloadIdentity:
    job = workload.job
    source = objects.annotations(job).get(job_objects.SOURCE, "Other")
    return {
        "id": workload_id(job),
        "name": objects.name(job),
        "type": workload_type(job),
        "distributedFramework": framework_name(job),
        "tenantId": TENANT,
        "clusterId": "",
        "projectId": "",
        "projectName": "",
        "departmentId": "",
        "departmentName": "",
        "namespace": "",
        "source": cast(answers.Source, source),
        "submittedBy": creator(job),
        "category": category(job),
        "priority": submission.PRIORITIES.get(priority_class(job)),
        "priorityClassName": priority_class(job),
        "preemptible": is_preemptible(job),
        "sourceApi": None,
        "aiApplicationId": None,
        "aiApplicationName": ai_application(job, templates),
    }


def _time_fields(job: Object, status: WorkloadStatus) -> answers.WorkloadTimes:
    created = created_at(job)
    return {
        "createdAt": created,
        "updatedAt": status.since or created,
        "deletedAt": objects.meta(job).get("deletionTimestamp"),
        "completedAt": completed_at(job),
        "phaseUpdatedAt": status.since or created,
        "k8sPhaseUpdatedAt": status.since or created,
        "guaranteedRuntimeEndsAt": None,
        "totalPendingTimeSeconds": None,
        "totalRunningTimeSeconds": None,
    }


def completed_at(job: Object) -> str | None:
    if completion_time := objects.dig(job, "status.completionTime"):
        return str(completion_time)
    ends = [c for kind in ("Failed", frameworks.succeeded_condition(job)) if (c := objects.condition(job, kind))]
    since = next((c.get("lastTransitionTime") for c in ends if c.get("status") == "True"), None)
    return str(since) if since else None  # may be missing in a status written by hand


def _last_condition(job: Object) -> str:
    conditions = objects.dig(job, "status.conditions", [])
    return str(conditions[-1].get("type")) if conditions else "Pending"


def _conditions(job: Object) -> list[answers.Condition]:
    return [
        {"type": c.get("type"), "status": c.get("status"), "message": c.get("message"), "reason": c.get("reason"),
         "lastTransitionTime": c.get("lastTransitionTime")}
        for c in objects.dig(job, "status.conditions", [])
    ]  # fmt: skip


def _resource_fields(workload: Workload, templates: PodTemplates) -> answers.WorkloadResources:
    counts, desired_pods = count_pods(workload.pods), sum(count for _, count in templates)
    smallest_card = workload.card_memory("")
    requested = requested_resources(templates, smallest_card)
    if desired_pods == len(templates) == 1:
        of_a_pod = requested
    else:
        largest = max((t for t, _ in templates), key=lambda t: compute.pod_gpus(t, smallest_card), default={})
        of_a_pod = requested_resources([(largest, 1)], smallest_card)
    elastic = objects.dig(workload.job, "spec.elasticPolicy", {})
    runs = 1 if workload_type(workload.job) == "Training" else None  # only standard trainings have runs in Run:ai
    return {
        "runningPods": counts.running,
        "requestedPods": {
            "number": desired_pods,
            "min": elastic.get("minReplicas"),
            "max": elastic.get("maxReplicas"),
            "parallelism": runs,
            "completions": runs,
        },
        "workloadRequestedResources": requested,
        "podsRequestedResources": of_a_pod,
        "allocatedResources": allocated_resources(_holding_pods(workload)),
        "idleGpus": None,
        "idleAllocatedGpus": None,
    }


def pod_templates(job: Object) -> list[tuple[Object, int]]:
    """The pod templates, each with its number of pods."""
    specs = frameworks.replica_specs(job).values()
    return [(r.get("template") or {}, 1 if r.get("replicas") is None else int(r["replicas"])) for r in specs]


def _holding_pods(workload: Workload) -> list[tuple[Object, int]]:
    """Bound pods that have not ended, each with the memory of its node's cards in MiB."""
    return [
        (pod, workload.card_memory(node))
        for pod in workload.pods
        if (node := str(objects.dig(pod, "spec.nodeName") or "")) and objects.phase(pod) in ("Pending", "Running")
    ]


def allocated_gpus(workload: Workload) -> Decimal:
    """GPUs held now: those of bound pods that have not ended."""
    return sum((compute.pod_gpus(pod, card) for pod, card in _holding_pods(workload)), Decimal(0))


def _content_fields(workload: Workload, templates: PodTemplates) -> answers.WorkloadContent:
    container = _first_container(templates)
    references = asset_references(workload.job)
    images = {c.get("image", "") for t, _ in templates for c in objects.dig(t, "spec.containers", [])}
    return {
        "images": sorted(images),
        "command": shlex.join(container.get("command") or []),
        "arguments": shlex.join(container.get("args") or []),
        "environmentVariables": {v["name"]: v["value"] for v in container.get("env") or [] if "value" in v},
        "urls": [],
        "datasources": _references_with_names(references.get("datasources")),
        "environments": _references_with_names([references.get("environment")]),
        "externalConnections": [],
        "childrenIds": [{"id": objects.uid(workload.job), "type": str(workload.job.get("kind"))}],
    }


def open_ports(job: Object, templates: PodTemplates) -> list[answers.Port]:
    """The ports of its containers, each once, without the framework's own port for the rendezvous."""
    ports = [
        port
        for template, _ in templates
        for container in objects.dig(template, "spec.containers", [])
        for port in container.get("ports") or ()
        if isinstance(port.get("containerPort"), int)
    ]
    if not ports:
        return []
    kind = kinds.by_api_version(str(job.get("apiVersion")), str(job.get("kind")))
    framework = frameworks.by_kind(kind) if kind else None
    found: dict[int, answers.Port] = {}
    for port in ports:
        number = port["containerPort"]
        if framework is None or number != framework.port.number:
            found.setdefault(number, {"name": str(port.get("name") or f"port-{number}"), "port": number})
    return list(found.values())


def asset_references(job: Object) -> dict[str, Any]:
    """The template and assets that a workload was submitted with, each `{"id", "name"}`; {} if there are none."""
    found = objects.written_json(objects.annotations(job).get(job_objects.ASSETS_ANNOTATION))
    return found if isinstance(found, dict) else {}


def _references_with_names(references: object) -> list[answers.TypedReference]:
    """The well-formed references: users can write annotations."""
    entries: list[Any] = references if isinstance(references, list) else []
    return [
        cast(answers.TypedReference, one)
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]


def main_container(job: Object) -> dict[str, Any]:
    """The first container of the first replica type, which runs the submitted command."""
    return _first_container(pod_templates(job))


def _first_container(templates: PodTemplates) -> dict[str, Any]:
    return next(iter(objects.dig(templates[0][0], "spec.containers", []) if templates else ()), {})


def _additional_fields(workload: Workload, status: WorkloadStatus, templates: PodTemplates) -> answers.AdditionalFields:
    counts = count_pods(workload.pods)
    chief = pods.chief_pod(workload.pods)
    container = _first_container(templates)
    node_names = {str(objects.dig(p, "spec.nodeName")) for p in workload.pods if objects.dig(p, "spec.nodeName")}
    fields: answers.AdditionalFields = {
        "status": status.status,
        "reason": status.reason,
        "argv": [*(container.get("command") or []), *(container.get("args") or [])],
        "pendingPods": counts.pending,
        "succeededPods": counts.succeeded,
        "failedPods": counts.failed,
        "nodes": sorted(node_names),
        "chief": objects.name(chief) if chief else "",
        "commandLine": objects.annotations(workload.job).get(job_objects.COMMAND_ANNOTATION, ""),
        "startedAt": objects.dig(workload.job, "status.startTime"),
        "kind": str(workload.job.get("kind")),
        "image": container.get("image", ""),
        "ports": open_ports(workload.job, templates),
    }
    return {**fields, **job_objects.maker_fields(workload.job)}


def workload_detail_json(workload: Workload) -> answers.WorkloadDetailed:
    """`GET /api/v1/workloads/{id}`: the list item, and why the workload waits."""
    body = workload_json(workload)
    is_waiting = body["phase"] in ("Pending", "Creating") and body["phaseMessage"] and body["phaseReason"]
    message: answers.PendingMessage = {
        "nodePool": node_pool_name(workload.job),
        "phaseReason": body["phaseReason"],
        "reason": body["phaseReason"],
        "orgType": "PROJECT",
        "userMessage": body["phaseMessage"],
    }
    return {**body, "pendingSchedulingMessages": [message] if is_waiting else []}


def distributed_workload_json(workload: Workload) -> answers.DistributedWorkload:
    """`GET /api/v1/workloads/distributed/{id}`, and the answer to a submit."""
    request = _submitted_body(workload.job)
    return {
        **_submitted_fields(workload, request),
        "masterSpecSameAsWorker": request.get("masterSpecSameAsWorker"),
        "masterSpec": _typed_spec(request.get("masterSpec")),
    }


def _submitted_body(job: Object) -> Json:
    found = objects.written_json(objects.annotations(job).get(REQUEST_ANNOTATION))
    return found if isinstance(found, dict) else {}


def _submitted_fields(workload: Workload, request: Json) -> answers.StandardWorkload:
    job = workload.job
    is_stopped = frameworks.is_suspended(job)
    return {
        "name": objects.name(job),
        "requestedName": request.get("name") or objects.name(job),
        "workloadId": workload_id(job),
        "projectId": workload.project.id,
        "departmentId": workload.project.department,
        "clusterId": workload.cluster,
        "createdBy": creator(job),
        "createdAt": created_at(job),
        "deletedAt": objects.meta(job).get("deletionTimestamp"),
        "desiredPhase": "Deleted" if objects.is_deleting(job) else "Stopped" if is_stopped else "Running",
        "actualPhase": workload.status().phase,
        "spec": _typed_spec(request.get("spec")) or _spec_of(job),
    }


def _typed_spec(spec: Any) -> Any:
    """A spec with Run:ai's types: lists of words or groups, which submits may contain, become strings, as Run:ai's clients expect."""
    if not isinstance(spec, dict):
        return spec
    typed: dict[str, Any] = {
        name: shlex.join(spec[name]) for name in ("command", "args") if isinstance(spec.get(name), list)
    }
    security = spec.get("security")
    if isinstance(security, dict) and isinstance(security.get("supplementalGroups"), list):
        groups = ",".join(map(str, security["supplementalGroups"]))
        typed["security"] = {**security, "supplementalGroups": groups}
    return {**spec, **typed}


def standard_workload_json(workload: Workload) -> answers.StandardWorkload:
    """`GET /api/v1/workloads/trainings/{id}` and `workspaces/{id}`: without the fields of masters and workers."""
    body = _submitted_fields(workload, _submitted_body(workload.job))
    return {**body, "spec": {key: one for key, one in body["spec"].items() if key not in submit_fields.DISTRIBUTED}}


def _spec_of(job: Object) -> Json:
    """The spec of a submit that corresponds to a job created with kubectl."""
    container = main_container(job)
    workers = frameworks.replica_specs(job).get(WORKER) or {}
    return {
        "image": container.get("image"),
        "command": shlex.join(container.get("command") or []) or None,
        "args": shlex.join(container.get("args") or []) or None,
        "numWorkers": workers.get("replicas", 1),
        "distributedFramework": framework_name(job),
    }
