"""A workload's pods: their order, their ranks, and Run:ai's Pod JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.answers import workloads as answers
from rowlock.objects import Object
from rowlock.training.batch_job.model import INDEX_KEY, JOB_NAME_LABEL
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.frameworks.torchrun import launched_ranks
from rowlock.training.jobset.model import PREFIX, REPLICATED_JOB_KEY
from rowlock.training.model import INDEX_LABEL, LAUNCHER, MASTER, TYPE_LABEL, WORKER
from rowlock.training.trainjob.model import DATASET_STEP, MODEL_STEP
from rowlock.workloads.figures.resources import allocated_resources, requested_resources
from rowlock.workloads.frameworks import (
    LEAD_ROLES,
    ROLES,
    desired_pods,
    has_jobs,
    is_batch_job,
    is_set,
    pods_per_job,
    ranked_job,
    replica_specs,
    replicated_job,
)
from rowlock.workloads.phase import is_running, pod_status

_ORDER = {role.lower(): n for n, role in enumerate(ROLES)}
_LEAD_ROLES = frozenset(role.lower() for role in LEAD_ROLES)
_RANKED = frozenset(f.kind.name for f in FRAMEWORKS.values() if f.pods_are_ranks)
"""Kinds whose pods are ranks; the master is rank 0."""


def replica_role(pod: Object) -> str:
    """The replica type in lower case, from the operator's label; "worker" for pods of a batch/v1 Job, the name of the replicated job for
    those of a set; "" for other pods."""
    labels = objects.labels(pod)
    return (
        labels.get(TYPE_LABEL) or labels.get(REPLICATED_JOB_KEY) or (WORKER.lower() if JOB_NAME_LABEL in labels else "")
    )


def replica_index(pod: Object) -> int:
    """The pod's index within its replica type (for a set within its Job); 0 if the label is missing or malformed."""
    labels = objects.labels(pod)
    text = labels.get(INDEX_LABEL) or labels.get(INDEX_KEY, "0")
    return int(text) if objects.is_digits(text) else 0


def sort_by_rank(pods: Iterable[Object]) -> list[Object]:
    """The pods in rank order: master first, then workers by index. The pods of a set are in the order of its Jobs, initializers (which
    fetch data and model) last."""
    return sorted(pods, key=lambda p: (_place(p), replica_index(p), objects.name(p)))


def _place(pod: Object) -> tuple[int, int]:
    """Sort key: the position of the replica type, or that of the Job in its set."""
    role = replica_role(pod)
    if REPLICATED_JOB_KEY in (labels := objects.labels(pod)) and TYPE_LABEL not in labels:
        return int(role in (DATASET_STEP, MODEL_STEP)), _number(labels, "job-global-index")
    return _ORDER.get(role, 99), 0


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(f"{PREFIX}{name}", "")
    return int(text) if objects.is_digits(text) else 0


def gone_pods(job: Object, pods: Iterable[Object]) -> list[Object]:
    """Minimal Pods, in rank order, for those of the job's replicas that are not among `pods`: they were deleted, or never
    created."""
    if has_jobs(job):  # their names have random suffixes
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


def labels_by_name(job: Object, pod: str) -> dict[str, str]:
    """The rank labels of a pod created by a Job, derived from its name (`<set>-<replicated job>-<job>-<index>-<random>` or
    `<Job>-<index>-<random>`); {} if the name has no index, or was truncated."""
    words = pod.removeprefix(f"{objects.name(job)}-").rsplit("-", 3)
    if is_batch_job(job):
        is_indexed = has_ranked_pods(job) and len(words) == 2 and objects.is_digits(words[0])
        return {JOB_NAME_LABEL: objects.name(job), INDEX_KEY: words[0]} if is_indexed else {}
    role = words[0]
    specs = list(objects.dig(job, "spec.replicatedJobs", None) or ())
    names = [one.get("name") for one in specs]
    if len(words) != 4 or role not in names or not all(objects.is_digits(word) for word in words[1:3]):
        return {}
    before = sum(int(one.get("replicas", 1)) for one in specs[: names.index(role)])
    numbers = {"job-index": words[1], "job-global-index": str(before + int(words[1]))}
    return {REPLICATED_JOB_KEY: role, INDEX_KEY: words[2], **{f"{PREFIX}{k}": v for k, v in numbers.items()}}


def _pod_name(job: Object, role: str, index: int) -> str:
    """The operator's name for the pod of a replica; an MPIJob's only launcher has no index."""
    word = f"{objects.name(job)}-{role.lower()}"
    return word if role == LAUNCHER else f"{word}-{index}"


def chief_pod(pods: Iterable[Object]) -> Object | None:
    """The default pod for logs: master, launcher, chief, or worker 0; None without pods."""
    sorted_pods = sort_by_rank(pods)
    leads = [p for p in sorted_pods if replica_role(p) in _LEAD_ROLES]
    workers = [p for p in sorted_pods if replica_role(p) == WORKER.lower()]
    return next(iter(leads or workers or sorted_pods), None)


def has_ranked_pods(job: Object) -> bool:
    """Whether the job's pods are ranks that differ only in their index, without helpers such as parameter servers."""
    if is_batch_job(job):
        return bool(objects.dig(job, "spec.completionMode") == "Indexed")
    if is_set(job):
        return bool(ranked_job(job))
    return job.get("kind") in _RANKED


def rank_label(job: Object, pod: Object) -> str:
    """The label of a pod's lines in a merged log: `rank 1` if pods are ranks, else `worker-1`."""
    replica_type, number = replica_role(pod), replica_index(pod)
    if is_batch_job(job) and not has_ranked_pods(job):
        return objects.name(pod)
    if is_set(job):
        return _label_in_set(job, pod)
    if not has_ranked_pods(job) or _ranks_per_pod(job) != 1:
        return f"{replica_type}-{number}" if replica_type else objects.name(pod)
    return f"rank {_pod_number(job, pod)}"


def _label_in_set(job: Object, pod: Object) -> str:
    role = replica_role(pod)
    replicated = replicated_job(job, role)
    if not replicated or objects.dig(replicated, "template.spec.completionMode", "Indexed") != "Indexed":
        return objects.name(pod)
    is_rank = role == ranked_job(job) and _ranks_per_pod(job) == 1
    return f"rank {_pod_number(job, pod)}" if is_rank else f"{role}-{_pod_number(job, pod)}"


def first_launched_rank(job: Object, pod: Object) -> int | None:
    """The first of the ranks that torchrun starts in this pod; None if their numbers are not known in advance."""
    each = _ranks_per_pod(job)
    if is_set(job) and replica_role(pod) != ranked_job(job):
        return None
    if not has_ranked_pods(job) or objects.dig(job, "spec.elasticPolicy"):
        return None
    if each == 1:  # torchrun may start more, whose ranks are known only for a single pod
        return 0 if desired_pods(job) == 1 else None
    return _pod_number(job, pod) * each if each else None


def rank_fields(job: Object, pod: Object) -> answers.RankFields:
    """The rank fields of a pod's JSON: `rank`, its label in merged logs, and `launchedRanks`, the `first` and `count` of the ranks that
    torchrun starts in it, or None if it starts one or their numbers are not known."""
    each = _ranks_per_pod(job)
    first = first_launched_rank(job, pod) if each > 1 else None
    launched: answers.LaunchedRanks | None = None if first is None else {"first": first, "count": each}
    return {"rank": rank_label(job, pod), "launchedRanks": launched}


def _pod_number(job: Object, pod: Object) -> int:
    if is_set(job):
        size = pods_per_job(replicated_job(job, replica_role(pod)))
        return _number(objects.labels(pod), "job-index") * size + replica_index(pod)
    is_behind_master = MASTER in replica_specs(job) and replica_role(pod) == WORKER.lower()
    return replica_index(pod) + (1 if is_behind_master else 0)


def _ranks_per_pod(job: Object) -> int:
    """Ranks per pod, from torchrun's option in the job's command, else from the job's spec; 0 if torchrun decides, or pods differ."""
    specs = replica_specs(job)
    working = [specs[ranked]] if is_set(job) and (ranked := ranked_job(job)) in specs else specs.values()
    numbers = {_launched_ranks(spec) for spec in working}
    if len(numbers) != 1:
        return 0 if numbers else 1
    if (own := numbers.pop()) is not None:
        return own
    text = _processes_of_torch(next(iter(working))) if is_set(job) else str(objects.dig(job, "spec.nprocPerNode", "1"))
    if text == "auto":
        return 1
    return int(text) if objects.is_digits(text) else 0


def _processes_of_torch(spec: Object) -> str:
    """PET_NPROC_PER_NODE, which Trainer sets in a set's pods and torchrun reads if its command has no option; default "1"."""
    main: Object = next(iter(objects.dig(spec, "template.spec.containers", [])), {})
    values = (str(one.get("value")) for one in main.get("env") or () if one.get("name") == "PET_NPROC_PER_NODE")
    return next(values, "1")


def _launched_ranks(replica_spec: Object) -> int | None:
    main: Object = next(iter(objects.dig(replica_spec, "template.spec.containers", [])), {})
    return launched_ranks([*(main.get("command") or ()), *(main.get("args") or ())])


@dataclass(frozen=True, slots=True)
class EndedRun:
    """One run of a container that has ended, as its pod's status tells it. `number` counts from 0."""

    container: str
    number: int
    terminated: Mapping[str, Any]
    is_current: bool = True
    """Its log is the container's current one, not the "previous" one."""
    is_init: bool = False


def ended_runs(pod: Object) -> Iterator[EndedRun]:
    """The runs of its containers and init containers that have ended; a status has the last two of each."""
    for field, is_init in (("initContainerStatuses", True), ("containerStatuses", False)):
        for status in objects.dig(pod, f"status.{field}", []):
            name, count = str(status.get("name")), int(status.get("restartCount") or 0)
            last, number = objects.dig(status, "lastState.terminated"), previous_number(status)
            if last and number >= 0:
                yield EndedRun(name, number, last, is_current=number == count, is_init=is_init)
            if now := objects.dig(status, "state.terminated"):
                yield EndedRun(name, count, now, is_init=is_init)


def previous_number(status: Mapping[str, Any]) -> int:
    """The number of the run in a container's lastState; -1 if there is none. While a container waits for its next start this is the run
    that restartCount counts already: it has that one's id."""
    count = int(status.get("restartCount") or 0)
    last = objects.dig(status, "lastState.terminated")
    if not last:
        return -1
    waiting = objects.dig(status, "state.waiting.reason") == "CrashLoopBackOff"
    is_same = last.get("containerID") == status.get("containerID") if last.get("containerID") else waiting
    return count if is_same and "terminated" not in (status.get("state") or {}) else count - 1


def exit_code(pod: Object) -> int | None:
    """The main container's exit code; None if it has not terminated."""
    for status in objects.dig(pod, "status.containerStatuses", []):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated is not None:
            return int(terminated.get("exitCode") or 0)
    return None


def pod_json(pod: Object, workload: answers.Workload, card_memory: int = 0) -> answers.PodFields:
    """Run:ai's Pod JSON. `workload` is the JSON of its workload, `card_memory` the memory of its node's cards in MiB."""
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


def _container(container: Object, states: list[Object]) -> answers.PodContainer:
    state = next((s.get("state") or {} for s in states if s.get("name") == container["name"]), {})
    started = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return {"name": container["name"], "image": container.get("image", ""), "startedAt": started}


def completed_at(pod: Object) -> str | None:
    """When its last container ended; None while one runs, or before they start."""
    states = objects.dig(pod, "status.containerStatuses", [])
    end_times = [(s.get("state") or {}).get("terminated", {}).get("finishedAt") for s in states]
    return max((e for e in end_times if e), default=None) if states and all(end_times) else None


def _last_transition(pod: Object) -> str:
    times = [str(c.get("lastTransitionTime") or "") for c in objects.dig(pod, "status.conditions", [])]
    return max(times, default="")


def _message(pod: Object, states: list[dict[str, Any]]) -> str:
    """Why the pod is not running: the message of the container, pod or scheduler."""
    for status in states:
        state = status.get("state") or {}
        for step in ("waiting", "terminated"):
            if (state.get(step) or {}).get("message"):
                return str(state[step]["message"])
    scheduled = objects.condition(pod, "PodScheduled") or {}
    unplaced = str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""
    return str(objects.dig(pod, "status.message", "")) or unplaced
