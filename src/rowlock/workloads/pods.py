"""A workload's pods: in which order, under which rank, and as Run:ai's Pod JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.training.batch_job.model import INDEX_KEY, JOB_NAME_LABEL
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.frameworks.torchrun import launched_ranks
from rowlock.training.model import INDEX_LABEL, LAUNCHER, MASTER, TYPE_LABEL, WORKER
from rowlock.workloads.figures.resources import allocated_resources, requested_resources
from rowlock.workloads.frameworks import LEAD_ROLES, ROLES, desired_pods, is_batch_job, replica_specs
from rowlock.workloads.phase import is_running, pod_status

_ORDER = {role.lower(): n for n, role in enumerate(ROLES)}
_LEAD_ROLES = frozenset(role.lower() for role in LEAD_ROLES)
_RANKED = frozenset(f.kind.name for f in FRAMEWORKS.values() if f.pods_are_ranks)
"""Kinds whose pods have one rank each, the master's being 0."""


def replica_role(pod: Object) -> str:
    """The replica type in lower case, from the operator's label; "" for a pod that is no replica. Pods of a batch/v1 Job are workers."""
    labels = objects.labels(pod)
    return labels.get(TYPE_LABEL) or (WORKER.lower() if JOB_NAME_LABEL in labels else "")


def replica_index(pod: Object) -> int:
    """The number within the replica type; 0 when the label is missing or not a number."""
    labels = objects.labels(pod)
    text = labels.get(INDEX_LABEL) or labels.get(INDEX_KEY, "0")
    return int(text) if objects.is_digits(text) else 0


def sort_by_rank(pods: Iterable[Object]) -> list[Object]:
    """Master first, then workers by index: the order of ranks."""
    return sorted(pods, key=lambda p: (_ORDER.get(replica_role(p), 99), replica_index(p), objects.name(p)))


def gone_pods(job: Object, pods: Iterable[Object]) -> list[Object]:
    """The pods that the job's replicas have by name and that are not among `pods`, in the order of ranks, as far as
    their names say: they were deleted, or were never made."""
    if is_batch_job(job):  # their names are random
        return []
    present = {objects.name(pod) for pod in pods}
    stubs = [
        {
            "metadata": {
                "name": _pod_name(job, role, index),
                "namespace": objects.namespace(job),
                "labels": {TYPE_LABEL: role.lower(), INDEX_LABEL: str(index)},
            }
        }
        for role, spec in replica_specs(job).items()
        for index in range(int(spec["replicas"]) if spec.get("replicas") is not None else 1)
    ]
    return sort_by_rank(stub for stub in stubs if objects.name(stub) not in present)


def _pod_name(job: Object, role: str, index: int) -> str:
    """As the operator names the pod of a replica: an MPIJob's launcher, which is one, has no number."""
    word = f"{objects.name(job)}-{role.lower()}"
    return word if role == LAUNCHER else f"{word}-{index}"


def chief_pod(pods: Iterable[Object]) -> Object | None:
    """The pod whose log people mean when they name none: master, launcher, chief, or worker 0."""
    sorted_pods = sort_by_rank(pods)
    leads = [p for p in sorted_pods if replica_role(p) in _LEAD_ROLES]
    workers = [p for p in sorted_pods if replica_role(p) == WORKER.lower()]
    return next(iter(leads or workers or sorted_pods), None)


def has_ranked_pods(job: Object) -> bool:
    """Its pods are ranks, equal but for their numbers: none of them only serves the others."""
    if is_batch_job(job):
        return bool(objects.dig(job, "spec.completionMode") == "Indexed")
    return job.get("kind") in _RANKED


def rank_label(job: Object, pod: Object) -> str:
    """What a line of the merged log begins with: `rank 1` where pods are ranks, else `worker-1`."""
    replica_type, number = replica_role(pod), replica_index(pod)
    if is_batch_job(job) and not has_ranked_pods(job):
        return objects.name(pod)
    if not has_ranked_pods(job) or _ranks_per_pod(job) != 1:
        return f"{replica_type}-{number}" if replica_type else objects.name(pod)
    return f"rank {_pod_number(job, pod)}"


def first_launched_rank(job: Object, pod: Object) -> int | None:
    """The first of the ranks that torchrun starts in this pod; None where their numbers are not known beforehand."""
    each = _ranks_per_pod(job)
    if not has_ranked_pods(job) or objects.dig(job, "spec.elasticPolicy"):
        return None
    if each == 1:  # or the program says how many: they are all of the job where there is one pod
        return 0 if desired_pods(job) == 1 else None
    return _pod_number(job, pod) * each if each else None


def rank_fields(job: Object, pod: Object) -> dict[str, Any]:
    """What a pod in JSON says of its ranks: `rank`, how the lines of its log begin; `launchedRanks`, which ranks torchrun starts in it
    (`first` and how many, `count`), or None where it starts one or their numbers are not known."""
    each = _ranks_per_pod(job)
    first = first_launched_rank(job, pod) if each > 1 else None
    launched = None if first is None else {"first": first, "count": each}
    return {"rank": rank_label(job, pod), "launchedRanks": launched}


def _pod_number(job: Object, pod: Object) -> int:
    is_behind_master = MASTER in replica_specs(job) and replica_role(pod) == WORKER.lower()
    return replica_index(pod) + (1 if is_behind_master else 0)


def _ranks_per_pod(job: Object) -> int:
    """As torchrun's own option in the job's command says, else as its spec does; 0 = torchrun finds out, or the pods differ."""
    numbers = {_launched_ranks(spec) for spec in replica_specs(job).values()}
    if len(numbers) != 1:
        return 0 if numbers else 1
    if (own := numbers.pop()) is not None:
        return own
    text = str(objects.dig(job, "spec.nprocPerNode", "1"))
    if text == "auto":
        return 1
    return int(text) if objects.is_digits(text) else 0


def _launched_ranks(replica_spec: Object) -> int | None:
    main: Object = next(iter(objects.dig(replica_spec, "template.spec.containers", [])), {})
    return launched_ranks([*(main.get("command") or ()), *(main.get("args") or ())])


def exit_code(pod: Object) -> int | None:
    """The main container's exit code, None while it has none."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated is not None:
            return int(terminated.get("exitCode") or 0)
    return None


def pod_json(pod: Object, workload: dict[str, Any], card_memory: int = 0) -> dict[str, Any]:
    """Run:ai's Pod JSON; `workload` is the presented workload that it belongs to, `card_memory` the MiB of its cards."""
    created = str(objects.meta(pod).get("creationTimestamp") or "")
    states = objects.dig(pod, "status.containerStatuses", [])
    holds_node = bool(objects.dig(pod, "spec.nodeName")) and objects.phase(pod) in ("Running", "Pending")
    return {
        "name": objects.name(pod),
        "id": objects.uid(pod),
        "workloadId": workload["id"],
        "workloadName": workload["name"],
        "clusterId": workload["clusterId"],
        "projectId": workload["projectId"],
        "projectName": workload["projectName"],
        "tenantId": workload["tenantId"],
        "priorityClassName": workload["priorityClassName"],
        "createdAt": created,
        "updatedAt": _last_transition(pod) or created,
        "completedAt": completed_at(pod),
        "k8sPhase": objects.phase(pod) or "Pending",
        "k8sPhaseUpdatedAt": _last_transition(pod) or created,
        "nodeName": objects.dig(pod, "spec.nodeName"),
        "ip": objects.dig(pod, "status.podIP"),
        "hostIp": objects.dig(pod, "status.hostIP"),
        "containers": [_container(c, states) for c in objects.dig(pod, "spec.containers", [])],
        "currentNodePool": workload["requestedNodePools"][0],
        "requestedNodePools": workload["requestedNodePools"],
        "requestedResources": requested_resources([(pod, 1)], card_memory),
        "allocatedResources": allocated_resources([(pod, card_memory)] if holds_node else []),
        "tolerations": [_toleration(entry) for entry in objects.dig(pod, "spec.tolerations", [])],
        "nodeAffinity": None,
        "revisionId": None,
        "deletedAt": objects.meta(pod).get("deletionTimestamp"),
        "status": pod_status(pod),
        "ready": is_running(pod),
        "role": replica_role(pod),
        "index": replica_index(pod),
        "restarts": sum(int(s.get("restartCount") or 0) for s in states),
        "exitCode": exit_code(pod),
        "message": _message(pod, states),
    }


def _toleration(entry: dict[str, Any]) -> dict[str, Any]:
    fields = ("key", "operator", "value", "effect", "tolerationSeconds")
    return {field: entry.get(field) for field in fields}


def _container(container: dict[str, Any], states: list[dict[str, Any]]) -> dict[str, Any]:
    state = next((s.get("state") or {} for s in states if s.get("name") == container["name"]), {})
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return {"name": container["name"], "image": container.get("image", ""), "startedAt": started}


def completed_at(pod: Object) -> str | None:
    """When its last container ended; None while one runs or none has begun."""
    states = objects.dig(pod, "status.containerStatuses", [])
    end_times = [(s.get("state") or {}).get("terminated", {}).get("finishedAt") for s in states]
    return max((e for e in end_times if e), default=None) if states and all(end_times) else None


def _last_transition(pod: Object) -> str:
    times = [str(c.get("lastTransitionTime") or "") for c in objects.dig(pod, "status.conditions", [])]
    return max(times, default="")


def _message(pod: Object, states: list[dict[str, Any]]) -> str:
    """Why the pod is not running, in the words of whoever decided."""
    for status in states:
        state = status.get("state") or {}
        for step in ("waiting", "terminated"):
            if (state.get(step) or {}).get("message"):
                return str(state[step]["message"])
    scheduled = objects.condition(pod, "PodScheduled") or {}
    unplaced = str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""
    return str(objects.dig(pod, "status.message", "")) or unplaced
