"""A workload's pods: in which order, under which rank, and as Run:ai's Pod JSON."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads import compute
from rowlock.workloads.frameworks import LEADS, replica_specs
from rowlock.workloads.phase import pod_status, runs

ROLE = "training.kubeflow.org/replica-type"
INDEX = "training.kubeflow.org/replica-index"
_ORDER = {name.lower(): n for n, name in enumerate(("Launcher", "Master", "Chief", "PS", "Worker", "Evaluator"))}
_RANKED = frozenset({"PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"})
"""Kinds whose pods have one rank each, the master's being 0."""


def role(pod: Object) -> str:
    return objects.labels(pod).get(ROLE, "")


def index(pod: Object) -> int:
    text = objects.labels(pod).get(INDEX, "0")
    return int(text) if text.isdigit() else 0


def ordered(pods: Iterable[Object]) -> list[Object]:
    """Master first, then workers by index: the order of ranks."""
    return sorted(pods, key=lambda p: (_ORDER.get(role(p), 99), index(p), objects.name(p)))


def chief(pods: Iterable[Object]) -> Object | None:
    """The pod whose log people mean when they name none: master, launcher, chief, or worker 0."""
    found = ordered(pods)
    leads = [p for p in found if role(p).capitalize() in LEADS]
    workers = [p for p in found if role(p) == "worker"]
    return next(iter(leads or workers or found), None)


def ranked(job: Object) -> bool:
    """Its pods are ranks, equal but for their numbers: none of them only serves the others."""
    return job.get("kind") in _RANKED


def tag(job: Object, pod: Object) -> str:
    """What a line of the merged log begins with: `rank 1` where pods are ranks, else `worker-1`."""
    word, number = role(pod), index(pod)
    if not ranked(job) or not _one_rank_per_pod(job):
        return f"{word}-{number}" if word else objects.name(pod)
    has_master = "Master" in replica_specs(job)
    return f"rank {number + (1 if has_master and word == 'worker' else 0)}"


def _one_rank_per_pod(job: Object) -> bool:
    return str(objects.dig(job, "spec.nprocPerNode", "1")) in ("1", "auto")


def exit_code(pod: Object) -> int | None:
    """The main container's exit code, None while it has none."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        ended = (status.get("state") or {}).get("terminated")
        if ended is not None:
            return int(ended.get("exitCode") or 0)
    return None


def present(pod: Object, workload: dict[str, Any]) -> dict[str, Any]:
    """Run:ai's Pod JSON; `workload` is the presented workload that it belongs to."""
    created = str(objects.meta(pod).get("creationTimestamp") or "")
    states = objects.dig(pod, "status.containerStatuses", [])
    gpus = compute.of_pod(pod)
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
        "updatedAt": _changed(pod) or created,
        "completedAt": _finished(states),
        "k8sPhase": objects.phase(pod) or "Pending",
        "k8sPhaseUpdatedAt": _changed(pod) or created,
        "nodeName": objects.dig(pod, "spec.nodeName"),
        "ip": objects.dig(pod, "status.podIP"),
        "hostIp": objects.dig(pod, "status.hostIP"),
        "containers": [_container(c, states) for c in objects.dig(pod, "spec.containers", [])],
        "currentNodePool": workload["requestedNodePools"][0],
        "requestedNodePools": workload["requestedNodePools"],
        "requestedResources": {"gpu": {"request": _number(gpus)}},
        "allocatedResources": {"gpu": _number(gpus) if objects.phase(pod) in ("Running", "Pending") else 0},
        "tolerations": [],
        "status": pod_status(pod),
        "ready": runs(pod),
        "role": role(pod),
        "index": index(pod),
        "restarts": sum(int(s.get("restartCount") or 0) for s in states),
        "exitCode": exit_code(pod),
        "message": _message(pod, states),
    }


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _container(container: dict[str, Any], states: list[dict[str, Any]]) -> dict[str, Any]:
    state = next((s.get("state") or {} for s in states if s.get("name") == container["name"]), {})
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return {"name": container["name"], "image": container.get("image", ""), "startedAt": started}


def _finished(states: list[dict[str, Any]]) -> str | None:
    ends = [(s.get("state") or {}).get("terminated", {}).get("finishedAt") for s in states]
    return max((e for e in ends if e), default=None) if states and all(ends) else None


def _changed(pod: Object) -> str:
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
