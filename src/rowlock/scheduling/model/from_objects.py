"""From objects to the planner's values: Node, Queue, Pod and PodGroup, one function each. Pure parsing, no policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.objects import (
    FINAL_PHASES,
    Object,
    annotations,
    condition,
    controller_of,
    dig,
    is_deleting,
    is_digits,
    keep_latest,
    labels,
    meta,
    name,
    namespace,
    phase,
    seconds,
    uid,
)
from rowlock.scheduling.model import pod_requests
from rowlock.scheduling.model.resources import UNLIMITED, WHOLE_GPU, ResourceVector
from rowlock.scheduling.model.scheduler_identity import SchedulerIdentity
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Status, Taint, Task

DEVICES_ANNOTATION = "rowlock.dev/devices"
MAX_RUNTIME_ANNOTATION = "rowlock.dev/max-runtime"
"""The declared maximum runtime of a job: it may use reserved nodes if it ends before they are needed."""
_PREEMPTION_DELAY, _STALENESS_GRACE = "kai.scheduler/preemption-delay", "kai.scheduler/staleness-grace-period"
FINISHED_ANNOTATION = "rowlock.dev/finished"
"""Set on the PodGroup of a job that has ended: its pending pods must not start any more."""
RETIRED_ANNOTATION = "rowlock.dev/retired"
"""Set on a node that is no longer part of the cluster's configuration: `true` if we cordoned it, `cordoned` if a user already had."""
POD_GROUP_ANNOTATION = "pod-group-name"
TOP_OWNER_ANNOTATION = "kai.scheduler/top-owner-metadata"
SUBGROUP_LABEL = "kai.scheduler/subgroup-name"
QUEUE_LABELS = ("kai.scheduler/queue", "runai/queue")
NAMESPACE_QUEUE_LABEL = "runai/queue"
DEFAULT_QUEUE = "default"
LAST_START_ANNOTATION, STALE_ANNOTATION = "kai.scheduler/last-start-timestamp", "kai.scheduler/stale-podgroup-timestamp"
PRIORITY_CLASS_VALUES = {
    "train": 50,
    "interactive-preemptible": 75,
    "build-preemptible": 75,
    "build": 100,
    "inference": 125,
}
DEFAULT_PRIORITY = 50
MAX_AMOUNT = 10**18
"""Larger bounds count as unlimited: no cluster has more, and sums of larger numbers (1e308) would overflow."""
LEADER_ROLES = frozenset({"master", "launcher", "chief"})


def _parse_amount(text: Any, resource: str) -> int:
    """A quantity in the planner's unit; 0 if it cannot be parsed (admission refuses it first)."""
    try:
        return quantity.millis(str(text)) if resource == "cpu" else quantity.integer_value(str(text))
    except BadRequest:
        return 0


@keep_latest(4_096)
def parse_node(obj: Object) -> Node:
    """A Node object as the planner sees it. Amounts are millicores, bytes and devices; what cannot be parsed counts as 0."""
    allocatable = dig(obj, "status.allocatable") or dig(obj, "status.capacity") or {}
    extras = {
        k: v
        for k, v in allocatable.items()
        if k not in {"cpu", "memory", "pods", pod_requests.GPU_RESOURCE, *pod_requests.IGNORED_RESOURCES}
    }
    ready_condition = condition(obj, "Ready")
    replicas = pod_requests.replicas_of(labels(obj))
    gpus = _parse_amount(allocatable.get(pod_requests.GPU_RESOURCE, 0), "gpu")
    if replicas > 1:  # the advertised devices are replicas, under one of two names
        gpus = (gpus + _parse_amount(allocatable.get(pod_requests.SHARED_RESOURCE, 0), "gpu")) // replicas
    return Node(
        name=name(obj),
        cpu=_parse_amount(allocatable.get("cpu", 0), "cpu"),
        memory=_parse_amount(allocatable.get("memory", 0), "memory"),
        gpus=gpus,
        gpu_memory=_gpu_memory_mib(labels(obj)),
        pods=_parse_amount(allocatable.get("pods", 110), "pods"),
        extras=tuple(sorted((k, _parse_amount(v, k)) for k, v in extras.items())),
        labels=tuple(sorted(labels(obj).items())),
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t["effect"])
            for t in dig(obj, "spec.taints") or ()
            if t["key"] != "node.kubernetes.io/unschedulable"
        ),
        unschedulable=bool(dig(obj, "spec.unschedulable")),
        retired=RETIRED_ANNOTATION in annotations(obj),
        ready=_is_ready(ready_condition),
        unready_since=0.0 if _is_ready(ready_condition) else seconds((ready_condition or {}).get("lastTransitionTime")),
        pool=pod_requests.node_pool(obj),
    )


def _is_ready(condition: Mapping[str, Any] | None) -> bool:
    """Whether the node is ready; one without the condition counts as ready."""
    return condition is None or condition.get("status") == "True"


def _gpu_memory_mib(node_labels: Mapping[str, str]) -> int:
    """MiB per GPU; 100 without the label. KAI rounds it down to hundreds, so there a request for all of a GPU's memory fits nowhere."""
    text = node_labels.get("nvidia.com/gpu.memory", "")
    return max(100, int(text)) if is_digits(text) else 100


QUEUE_ORDER_ANNOTATION = "rowlock.dev/queue-order"
"""Queue annotation: uids of jobs, separated by spaces, that are tried in this order before the others of their priority."""


def parse_queue(obj: Object) -> Queue:
    """A KAI Queue object as the planner sees it. Negative and absent amounts are unlimited, but an absent GPU quota is 0."""
    spec = obj.get("spec") or {}
    return Queue(
        name=name(obj),
        parent=str(spec.get("parentQueue") or ""),
        quota=_resource_vector(spec, "quota", 0),
        limit=_resource_vector(spec, "limit", UNLIMITED),
        weight=_over_quota_weights(spec),
        priority=int(spec["priority"]) if spec.get("priority") is not None else 100,
        created=seconds(meta(obj).get("creationTimestamp")),
        preempt_min_runtime=quantity.parse_duration(spec.get("preemptMinRuntime")),
        reclaim_min_runtime=quantity.parse_duration(spec.get("reclaimMinRuntime")),
        order=tuple(str(annotations(obj).get(QUEUE_ORDER_ANNOTATION) or "").split()),
    )


def _resource_vector(spec: Mapping[str, Any], field: str, default: int) -> ResourceVector:
    """KAI counts CPU in millicores, memory in MB, GPUs in units. An absent CPU or memory quota is unlimited: our projects guarantee only
    GPUs, and a project without a CPU quota must not count as over quota."""
    amounts: list[int] = []
    for resource, unit in (("cpu", 1), ("memory", 10**6), ("gpu", WHOLE_GPU)):
        value = dig(spec, f"resources.{resource}.{field}")
        if value is None:
            amounts.append(UNLIMITED if resource != "gpu" else default)
        else:
            amount = float(value) * unit
            amounts.append(round(amount) if 0 <= amount <= MAX_AMOUNT else UNLIMITED)
    return (amounts[0], amounts[1], amounts[2])


def _over_quota_weights(spec: Mapping[str, Any]) -> tuple[float, float, float]:
    weights = []
    for resource in ("cpu", "memory", "gpu"):
        value = dig(spec, f"resources.{resource}.overQuotaWeight")
        weights.append(1.0 if value is None else float(value))
    return (weights[0], weights[1], weights[2])


DURATION_ANNOTATIONS = (MAX_RUNTIME_ANNOTATION, _PREEMPTION_DELAY, _STALENESS_GRACE)
"""Annotations of jobs, bare pods and PodGroups whose value is a duration; a malformed one counts as absent."""


def parse_task(pod: Object, pod_sets: frozenset[str]) -> Task:
    """A Pod as the planner sees it. `pod_sets` are the names of the gang's sub-groups: the pod belongs to the one that its label
    names, else to that of its replica type, else to the only one."""
    scheduled = condition(pod, "PodScheduled")
    role = labels(pod).get("training.kubeflow.org/replica-type", "")
    pod_set = labels(pod).get(SUBGROUP_LABEL, "")
    if pod_set not in pod_sets:
        pod_set = role if role in pod_sets else next(iter(sorted(pod_sets)), "") if len(pod_sets) == 1 else ""
    text = labels(pod).get("kai.scheduler/task-priority", "")
    task_priority = 10**6 + int(text) if is_digits(text.lstrip("-")) else 0
    return Task(
        uid=uid(pod),
        namespace=namespace(pod),
        name=name(pod),
        shape=pod_requests.pod_shape(pod),
        status=pod_status(pod),
        pod_set=pod_set,
        node=str(dig(pod, "spec.nodeName") or ""),
        devices=assigned_devices(pod),
        priority=task_priority or int(role in LEADER_ROLES),
        created=seconds(meta(pod).get("creationTimestamp")),
        verdict=str(scheduled.get("message") or "") if scheduled and scheduled.get("status") == "False" else "",
    )


def pod_status(pod: Object) -> Status:
    """The planner's status of a pod."""
    pod_phase = phase(pod)
    if pod_phase in FINAL_PHASES:
        return Status(pod_phase)
    if not dig(pod, "spec.nodeName"):
        gated = dig(pod, "spec.schedulingGates") or is_deleting(pod)
        return Status.GATED if gated else Status.PENDING
    if is_deleting(pod):
        return Status.RELEASING
    return Status.RUNNING  # bound or running: both hold their resources


def assigned_devices(pod: Object) -> tuple[int, ...]:
    """The indices of the GPUs that the pod was assigned at its bind; () for none or unknown ones."""
    text = annotations(pod).get(DEVICES_ANNOTATION, "")
    return tuple(int(part) for part in text.split(",") if is_digits(part.strip()))


def queue_of(obj: Object, group: Object | None, namespace_object: Object | None) -> str:
    """The name of the queue: the PodGroup's spec.queue, else a label of the object, the group or the namespace, else `default`."""
    if group is not None and dig(group, "spec.queue"):
        return str(group["spec"]["queue"])
    for source in (obj, group or {}):
        for label in QUEUE_LABELS:
            if labels(source).get(label):
                return str(labels(source)[label])
    return str(labels(namespace_object or {}).get(NAMESPACE_QUEUE_LABEL) or DEFAULT_QUEUE)


def priority_value(class_name: str, classes: Mapping[str, int], default: int = DEFAULT_PRIORITY) -> int:
    """The value of a priority class: of the cluster's PriorityClass, else of Run:ai's classes, else `default`."""
    if class_name in classes:
        return classes[class_name]
    return PRIORITY_CLASS_VALUES.get(class_name, default)


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether a gang is preemptible: by its preemptibility label, else by its priority (below 100)."""
    return preemptibility == "preemptible" if preemptibility in ("preemptible", "non-preemptible") else priority < 100


def bare_pod_gang(
    pod: Object,
    queue_name: str,
    classes: Mapping[str, int],
    identity: SchedulerIdentity,
    *,
    parse: Callable[[Object, frozenset[str]], Task] = parse_task,
) -> Gang:
    """A pod without a group is a gang of one. `parse` as in `pod_group_gang`."""
    spec = pod.get("spec") or {}
    class_name = str(labels(pod).get("priorityClassName") or spec.get("priorityClassName") or "")
    priority = priority_value(class_name, classes, int(spec.get("priority") or 0) or DEFAULT_PRIORITY)
    created = seconds(meta(pod).get("creationTimestamp"))
    return Gang(
        namespace=namespace(pod),
        name=f"pod/{name(pod)}",
        uid=uid(pod),
        queue=queue_name,
        tasks=(parse(pod, frozenset({""})),),
        priority=priority,
        preemptible=is_preemptible(labels(pod).get("kai.scheduler/preemptibility", ""), priority),
        created=created,
        bare=True,
        owner=_fields_of(owner) if (owner := controller_of(pod) or {}).get("kind") == "Job" else ("", "", "", ""),
        foreign=identity.is_foreign(pod),
        started=seconds(dig(pod, "status.startTime")),
        delay=quantity.parse_duration(annotations(pod).get(_PREEMPTION_DELAY)) or 0.0,
        lasts=quantity.parse_duration(annotations(pod).get(MAX_RUNTIME_ANNOTATION))
        or float(spec.get("activeDeadlineSeconds") or 0),
    )


def pod_group_gang(
    group: Object,
    pods: Sequence[Object],
    queue_name: str,
    classes: Mapping[str, int],
    identity: SchedulerIdentity,
    *,
    parse: Callable[[Object, frozenset[str]], Task] = parse_task,
) -> Gang:
    """The gang of a PodGroup and its pods. `parse` is `parse_task` or a function that caches its results."""
    spec = group.get("spec") or {}
    pod_sets = _parse_pod_sets(spec)
    names = frozenset(s.name for s in pod_sets)
    priority = priority_value(str(spec.get("priorityClassName") or ""), classes)
    group_annotations = annotations(group)
    tasks = tuple(parse(p, names) for p in pods)
    if any(dig(g, "topologyConstraint.requiredTopologyLevel") for g in spec.get("subGroups") or ()):
        text = "subGroups[].topologyConstraint is not supported here; put topologyConstraint on the whole PodGroup"
        tasks = tuple(replace(t, shape=replace(t.shape, unsupported=text)) for t in tasks)
    if pool := pod_requests.node_pool(group):  # a gang is in one pool: its label applies to all its pods
        tasks = tuple(replace(t, shape=replace(t.shape, pool=pool)) for t in tasks)
    return Gang(
        namespace=namespace(group),
        name=name(group),
        uid=uid(group),
        queue=queue_name,
        tasks=tasks,
        pod_sets=pod_sets,
        priority=priority,
        preemptible=is_preemptible(str(spec.get("preemptibility") or ""), priority),
        created=seconds(meta(group).get("creationTimestamp")),
        foreign=identity.is_foreign_gang(pods),
        started=seconds(dig(group, "status.startTime") or group_annotations.get(LAST_START_ANNOTATION)),
        stale=seconds(dig(group, "status.staleSince") or group_annotations.get(STALE_ANNOTATION)),
        verdict=str(dig(group, "status.explanation.message") or ""),
        delay=quantity.parse_duration(group_annotations.get(_PREEMPTION_DELAY)) or 0.0,
        owner=_workload_of(group),
        grace=quantity.parse_duration(spec.get("stalenessGracePeriod") or group_annotations.get(_STALENESS_GRACE)),
        lasts=quantity.parse_duration(group_annotations.get(MAX_RUNTIME_ANNOTATION)) or 0.0,
        required=str(dig(spec, "topologyConstraint.requiredTopologyLevel") or ""),
        preferred=str(dig(spec, "topologyConstraint.preferredTopologyLevel") or ""),
    )


def _workload_of(group: Object) -> tuple[str, str, str, str]:
    """(apiVersion, kind, name, uid) of the workload that a PodGroup belongs to: its controller; of a JobSet's group the top owner, if it is
    noted, which is the TrainJob of that set."""
    owner = controller_of(group) or {}
    if owner.get("kind") == "JobSet" and (note := annotations(group).get(TOP_OWNER_ANNOTATION)):
        top = dict(line.split(": ", 1) for line in note.splitlines() if ": " in line)
        if top.keys() >= {"group", "version", "kind", "name", "uid"}:
            return f"{top['group']}/{top['version']}", top["kind"], top["name"], top["uid"]
    return _fields_of(owner)


def _fields_of(owner: Mapping[str, Any]) -> tuple[str, str, str, str]:
    version, kind, own_name, own_uid = (str(owner.get(field, "")) for field in ("apiVersion", "kind", "name", "uid"))
    return version, kind, own_name, own_uid


def _parse_pod_sets(spec: Mapping[str, Any]) -> tuple[PodSet, ...]:
    """The leaves of the sub-group tree; without sub-groups one set with the group's minMember."""
    groups = spec.get("subGroups") or ()
    parents = {g.get("parent") for g in groups}
    leaves = [g for g in groups if g.get("name") not in parents]
    if not leaves:
        return (PodSet("", int(spec.get("minMember") or 1)),)
    return tuple(PodSet(str(g["name"]), int(g.get("minMember") or 0)) for g in leaves)


def pod_group_name(pod: Object) -> str:
    """The PodGroup that the pod itself names, "" when it names none."""
    return str(annotations(pod).get(POD_GROUP_ANNOTATION, ""))


def is_finished(group: Object, pods: Sequence[Object]) -> bool:
    """Whether the gang's job has ended, or its leader has: the scheduler sees the free resources before the job's controller marks the
    PodGroup."""
    return FINISHED_ANNOTATION in annotations(group) or any(
        phase(p) == "Succeeded" and labels(p).get("training.kubeflow.org/replica-type") in LEADER_ROLES for p in pods
    )


def is_kubeflow_pod(pod: Object) -> bool:
    """Whether a training job created the pod: such a pod is scheduled with its PodGroup or not at all."""
    owner = controller_of(pod)
    return owner is not None and str(owner.get("apiVersion", "")).startswith("kubeflow.org/")
