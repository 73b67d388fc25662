"""From objects to the planner's values: Node, Queue, Pod and PodGroup, one function each. Pure parsing, no policy."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.objects import (
    Object,
    annotations,
    condition,
    controller_of,
    deleting,
    dig,
    labels,
    meta,
    name,
    namespace,
    phase,
    seconds,
    uid,
)
from rowlock.scheduling import requests
from rowlock.scheduling.amounts import UNLIMITED, WHOLE, Vector
from rowlock.scheduling.snapshot import Gang, Node, PodSet, Queue, Status, Taint, Task

DEVICES = "rowlock.dev/devices"
LASTS = "rowlock.dev/max-runtime"
"""How long a job runs at most, declared: it may run beside nodes that are kept for a big gang."""
RETIRED = "rowlock.dev/retired"
"""On a node of an earlier start that was not wanted by the next: what closed it, us (`true`) or a person before (`cordoned`)."""
GROUP = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
QUEUE_LABELS = ("kai.scheduler/queue", "runai/queue")
NAMESPACE_QUEUE = "runai/queue"
DEFAULT_QUEUE = "default"
STARTED, STALE = "kai.scheduler/last-start-timestamp", "kai.scheduler/stale-podgroup-timestamp"
OURS = frozenset({"", "default-scheduler", "kai-scheduler", "runai-scheduler", "rowlock"})
"""The schedulerNames that mean this scheduler: there is one in the embedded cluster."""
PRIORITIES = {"train": 50, "interactive-preemptible": 75, "build-preemptible": 75, "build": 100, "inference": 125}
TRAIN = 50
FIRST_ROLES = frozenset({"master", "launcher", "chief"})


def _amount(text: Any, resource: str) -> int:
    """A quantity in the planner's unit; what cannot be read counts as nothing (admission refuses it first)."""
    try:
        return quantity.millis(str(text)) if resource == "cpu" else quantity.whole(str(text))
    except BadRequest:
        return 0


def node(obj: Object) -> Node:
    room = dig(obj, "status.allocatable") or dig(obj, "status.capacity") or {}
    extras = {k: v for k, v in room.items() if k not in {"cpu", "memory", "pods", requests.GPU, *requests.IGNORED}}
    ready = condition(obj, "Ready")
    return Node(
        name=name(obj),
        cpu=_amount(room.get("cpu", 0), "cpu"),
        memory=_amount(room.get("memory", 0), "memory"),
        gpus=_amount(room.get(requests.GPU, 0), "gpu"),
        gpu_memory=_gpu_memory(labels(obj)),
        pods=_amount(room.get("pods", 110), "pods"),
        extras=tuple(sorted((k, _amount(v, k)) for k, v in extras.items())),
        labels=tuple(sorted(labels(obj).items())),
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t["effect"])
            for t in dig(obj, "spec.taints") or ()
            if t["key"] != "node.kubernetes.io/unschedulable"
        ),
        unschedulable=bool(dig(obj, "spec.unschedulable")),
        retired=RETIRED in annotations(obj),
        ready=_ready(ready),
        unready_since=0.0 if _ready(ready) else seconds((ready or {}).get("lastTransitionTime")),
        pool=requests.pool_of(obj),
    )


def _ready(condition: Mapping[str, Any] | None) -> bool:
    """A node that says nothing is taken at its word."""
    return condition is None or condition.get("status") == "True"


def _gpu_memory(marks: Mapping[str, str]) -> int:
    """MiB per card, floored to hundreds as KAI does; 100 where the node does not say."""
    text = marks.get("nvidia.com/gpu.memory", "")
    return max(100, int(text) // 100 * 100) if text.isdigit() else 100


def queue(obj: Object) -> Queue:
    spec = obj.get("spec") or {}
    return Queue(
        name=name(obj),
        parent=str(spec.get("parentQueue") or ""),
        quota=_three(spec, "quota", 0),
        limit=_three(spec, "limit", UNLIMITED),
        weight=_weights(spec),
        priority=int(spec["priority"]) if spec.get("priority") is not None else 100,
        created=seconds(meta(obj).get("creationTimestamp")),
        preempt_min_runtime=duration(spec.get("preemptMinRuntime")),
        reclaim_min_runtime=duration(spec.get("reclaimMinRuntime")),
    )


def _three(spec: Mapping[str, Any], field: str, absent: int) -> Vector:
    """KAI counts CPU in millicores, memory in MB, GPUs in units. An absent CPU or memory quota is unlimited: in our
    projects only GPUs are promised, and a project without a word about CPU must not count as over quota."""
    found: list[int] = []
    for resource, unit in (("cpu", 1), ("memory", 10**6), ("gpu", WHOLE)):
        value = dig(spec, f"resources.{resource}.{field}")
        if value is None:
            found.append(UNLIMITED if resource != "gpu" else absent)
        else:
            found.append(UNLIMITED if float(value) < 0 else round(float(value) * unit))
    return (found[0], found[1], found[2])


def _weights(spec: Mapping[str, Any]) -> tuple[float, float, float]:
    found = []
    for resource in ("cpu", "memory", "gpu"):
        value = dig(spec, f"resources.{resource}.overQuotaWeight")
        found.append(1.0 if value is None else float(value))
    return (found[0], found[1], found[2])


def duration(text: Any) -> float | None:
    """Go's duration ("1h30m", "90s", "5m") in seconds; None for nothing or for what cannot be read."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", str(text or ""))
    if not parts:
        return None
    return sum(float(n) * {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}[u] for n, u in parts)


def task(pod: Object, sets: frozenset[str]) -> Task:
    verdict = condition(pod, "PodScheduled")
    role = labels(pod).get("training.kubeflow.org/replica-type", "")
    pod_set = labels(pod).get(SUBGROUP, "")
    if pod_set not in sets:
        pod_set = role if role in sets else next(iter(sorted(sets)), "") if len(sets) == 1 else ""
    text = labels(pod).get("kai.scheduler/task-priority", "")
    own = 10**6 + int(text) if text.lstrip("-").isdigit() else 0
    return Task(
        uid=uid(pod),
        namespace=namespace(pod),
        name=name(pod),
        shape=requests.shape(pod),
        status=status(pod),
        pod_set=pod_set,
        node=str(dig(pod, "spec.nodeName") or ""),
        devices=devices(pod),
        priority=own or int(role in FIRST_ROLES),
        created=seconds(meta(pod).get("creationTimestamp")),
        verdict=str(verdict.get("message") or "") if verdict and verdict.get("status") == "False" else "",
    )


def status(pod: Object) -> Status:
    now = phase(pod)
    if now in ("Succeeded", "Failed"):
        return Status(now)
    if not dig(pod, "spec.nodeName"):
        gated = dig(pod, "spec.schedulingGates") or deleting(pod)
        return Status.GATED if gated else Status.PENDING
    if deleting(pod):
        return Status.RELEASING
    return Status.RUNNING  # bound or running: it holds its room, and that is all the planner asks


def devices(pod: Object) -> tuple[int, ...]:
    text = annotations(pod).get(DEVICES, "")
    return tuple(int(part) for part in text.split(",") if part.strip().isdigit())


def foreign(pod: Object) -> bool:
    return str(dig(pod, "spec.schedulerName") or "") not in OURS


def queue_of(obj: Object, group: Object | None, home: Object | None) -> str:
    """The queue: the PodGroup's word, then labels on the object or the group, then the namespace, then `default`."""
    if group is not None and dig(group, "spec.queue"):
        return str(group["spec"]["queue"])
    for source in (obj, group or {}):
        for label in QUEUE_LABELS:
            if labels(source).get(label):
                return str(labels(source)[label])
    return str(labels(home or {}).get(NAMESPACE_QUEUE) or DEFAULT_QUEUE)


def priority_of(class_name: str, classes: Mapping[str, int], absent: int = TRAIN) -> int:
    """The value of a priority class: the cluster's PriorityClass, else Run:ai's own four, else `absent`."""
    if class_name in classes:
        return classes[class_name]
    return PRIORITIES.get(class_name, absent)


def _preemptible(word: str, priority: int) -> bool:
    return word == "preemptible" if word in ("preemptible", "non-preemptible") else priority < 100


def bare_gang(pod: Object, queue_name: str, classes: Mapping[str, int]) -> Gang:
    """A pod without a group is a gang of one."""
    spec = pod.get("spec") or {}
    class_name = str(labels(pod).get("priorityClassName") or spec.get("priorityClassName") or "")
    priority = priority_of(class_name, classes, int(spec.get("priority") or 0) or TRAIN)
    made = seconds(meta(pod).get("creationTimestamp"))
    return Gang(
        namespace=namespace(pod),
        name=f"pod/{name(pod)}",
        uid=uid(pod),
        queue=queue_name,
        tasks=(task(pod, frozenset({""})),),
        priority=priority,
        preemptible=_preemptible(labels(pod).get("kai.scheduler/preemptibility", ""), priority),
        created=made,
        bare=True,
        foreign=foreign(pod),
        started=seconds(dig(pod, "status.startTime")),
        delay=duration(annotations(pod).get("kai.scheduler/preemption-delay")) or 0.0,
        lasts=duration(annotations(pod).get(LASTS)) or float(spec.get("activeDeadlineSeconds") or 0),
    )


def group_gang(group: Object, pods: Iterable[Object], queue_name: str, classes: Mapping[str, int]) -> Gang:
    """A PodGroup and its pods."""
    spec = group.get("spec") or {}
    sets = _pod_sets(spec)
    names = frozenset(s.name for s in sets)
    priority = priority_of(str(spec.get("priorityClassName") or ""), classes)
    notes = annotations(group)
    tasks = tuple(task(p, names) for p in pods)
    if any(dig(g, "topologyConstraint.requiredTopologyLevel") for g in spec.get("subGroups") or ()):
        text = "subGroups[].topologyConstraint is not supported here; put topologyConstraint on the whole PodGroup"
        tasks = tuple(replace(t, shape=replace(t.shape, unsupported=text)) for t in tasks)
    if pool := requests.pool_of(group):  # a gang lives in one pool: its own label counts for all its pods
        tasks = tuple(replace(t, shape=replace(t.shape, pool=pool)) for t in tasks)
    owner = controller_of(group) or {}
    return Gang(
        namespace=namespace(group),
        name=name(group),
        uid=uid(group),
        queue=queue_name,
        tasks=tasks,
        pod_sets=sets,
        priority=priority,
        preemptible=_preemptible(str(spec.get("preemptibility") or ""), priority),
        created=seconds(meta(group).get("creationTimestamp")),
        started=seconds(dig(group, "status.startTime") or notes.get(STARTED)),
        stale=seconds(dig(group, "status.staleSince") or notes.get(STALE)),
        verdict=str(dig(group, "status.explanation.message") or ""),
        delay=duration(notes.get("kai.scheduler/preemption-delay")) or 0.0,
        owner=(
            str(owner.get("apiVersion", "")),
            str(owner.get("kind", "")),
            str(owner.get("name", "")),
            str(owner.get("uid", "")),
        ),
        grace=duration(spec.get("stalenessGracePeriod") or notes.get("kai.scheduler/staleness-grace-period")),
        lasts=duration(notes.get(LASTS)) or 0.0,
        required=str(dig(spec, "topologyConstraint.requiredTopologyLevel") or ""),
        preferred=str(dig(spec, "topologyConstraint.preferredTopologyLevel") or ""),
    )


def _pod_sets(spec: Mapping[str, Any]) -> tuple[PodSet, ...]:
    """The leaves of the sub-group tree; without sub-groups one set with the group's minMember."""
    groups = spec.get("subGroups") or ()
    inner = {g.get("parent") for g in groups}
    leaves = [g for g in groups if g.get("name") not in inner]
    if not leaves:
        return (PodSet("", int(spec.get("minMember") or 1)),)
    return tuple(PodSet(str(g["name"]), int(g.get("minMember") or 0)) for g in leaves)


def group_key(pod: Object) -> str:
    """The PodGroup that the pod itself names, "" when it names none."""
    return str(annotations(pod).get(GROUP, ""))


def kubeflow(pod: Object) -> bool:
    """Made by a training job: it is scheduled with its PodGroup or not at all."""
    owner = controller_of(pod)
    return owner is not None and str(owner.get("apiVersion", "")).startswith("kubeflow.org/")
