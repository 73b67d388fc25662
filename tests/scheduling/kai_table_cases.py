"""KAI's test tables as snapshots: what a converted Go table says, with the defaults its fake builders add.

A `TableCase` is mutable on purpose: it is the little cluster that the rounds of an integration table play on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.scheduling.model.resources import UNLIMITED, WHOLE_GPU
from rowlock.scheduling.model.snapshot import (
    Gang,
    Node,
    PodSet,
    Queue,
    Requirement,
    SchedulerSettings,
    Shape,
    Snapshot,
    Status,
    Task,
)

NOW = 10_000_000.0
CORE, MB, GB = 1000, 10**6, 10**9
DEFAULT_DEPARTMENT = "default"
NOT_APPLICABLE_KEYS = {
    "Topologies": "topology",
    "TestDRAObjects": "DRA",
    "RequiredMigInstances": "MIG",
    "MigInstances": "MIG",
    "MigStrategy": "MIG",
    "ResourceClaimNames": "DRA",
    "PodAffinityLabels": "pod affinity",
    "PodAntiAffinity": "pod affinity",
}
"""A table that uses one of these is not applicable: the feature lies outside our fence."""
STATUS_OF_STATE = {"Binding": Status.BOUND, "Bound": Status.BOUND}
ACTIONS = {
    "allocate": "allocate",
    "consolidation": "consolidate",
    "reclaim": "reclaim",
    "preempt": "preempt",
    "stalegangeviction": "stale",
}


def not_applicable_feature(value: Any) -> str:
    """The feature outside the fence that a table uses, "" when it uses none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in NOT_APPLICABLE_KEYS and inner:
                return NOT_APPLICABLE_KEYS[key]
            if key == "topology" and inner:
                return "topology"
            if feature := not_applicable_feature(inner):
                return feature
    elif isinstance(value, list):
        for inner in value:
            if feature := not_applicable_feature(inner):
                return feature
    return ""


@dataclass(slots=True)
class TableTask:
    """One pod as it stands between rounds."""

    name: str
    job: TableJob
    shape: Shape
    status: Status
    pod_set: str
    node: str
    devices: tuple[int, ...]
    priority: int


@dataclass(slots=True)
class TableJob:
    name: str
    queue: str
    priority: int
    preemptible: bool
    created: float
    pod_sets: tuple[PodSet, ...]
    deleted: bool
    stale: float
    ready: bool
    tasks: list[TableTask] = field(default_factory=list)


@dataclass(slots=True)
class TableCase:
    """A table, ready to be played."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    jobs: list[TableJob]
    settings: SchedulerSettings

    def snapshot(self) -> Snapshot:
        return Snapshot(NOW, self.nodes, self.queues, tuple(_gang(j) for j in self.jobs), (), self.settings)


def _gang(job: TableJob) -> Gang:
    tasks = tuple(
        Task(t.name, "ns", t.name, t.shape, t.status, t.pod_set, t.node, t.devices, t.priority, float(i))
        for i, t in enumerate(job.tasks)
    )
    return Gang(
        "ns",
        job.name,
        job.name,
        job.queue,
        tasks,
        job.pod_sets,
        job.priority,
        job.preemptible,
        job.created,
        stale=job.stale,
    )


def read_case(table: Mapping[str, Any]) -> TableCase:
    """One table; see `not_applicable_feature` for those that cannot be read."""
    nodes = tuple(_node(name, spec or {}) for name, spec in (table.get("Nodes") or {}).items())
    jobs = _jobs(table)
    _assign_devices(table, nodes, jobs)
    return TableCase(nodes, tuple(_queues(table)), jobs, _settings(table))


def _node(name: str, spec: Any) -> Node:
    fields = spec if isinstance(spec, dict) else {}
    labels = fields.get("Labels") or {}
    return Node(
        name=name,
        cpu=int(fields.get("CPUMillis") or 20_000) * CORE,
        memory=int(fields.get("CPUMemory") or 20 * GB),
        gpus=int(fields.get("GPUs") or 0),
        gpu_memory=int(fields.get("GPUMemory") or 100),
        pods=int(fields.get("MaxTaskNum") or 110),
        labels=tuple(sorted({**labels, "kubernetes.io/hostname": name}.items())),
    )


def _settings(table: Mapping[str, Any]) -> SchedulerSettings:
    path = str(table.get("_file", ""))
    action = path.rpartition("actions/")[2].partition("/")[0]
    mocks = table.get("Mocks") or {}
    conf = mocks.get("SchedulerConf") or {}
    actions = tuple(ACTIONS.values()) if action not in ACTIONS else (ACTIONS[action],)
    if conf.get("Actions"):
        actions = tuple(ACTIONS[a.strip()] for a in conf["Actions"].split(","))
    order = {a: i for i, a in enumerate(("allocate", "consolidate", "reclaim", "preempt", "stale"))}
    strategies = {"gpu": "pack", "cpu": "pack", "cards": "pack"}
    for tier in conf.get("Tiers") or ():
        for plugin in tier.get("Plugins") or ():
            if plugin.get("Name") == "gpuspread":
                strategies["cards"] = "spread"
            if plugin.get("Name") == "nodeplacement":
                for key, value in (plugin.get("Arguments") or {}).items():
                    strategies[key] = "spread" if value == "spread" else "pack"
    return SchedulerSettings(
        gpu=strategies["gpu"],
        cpu=strategies["cpu"],
        cards=strategies["cards"],
        actions=tuple(sorted(actions, key=order.__getitem__)),
    )


def _queues(table: Mapping[str, Any]) -> Iterator[Queue]:
    departments = list(table.get("Departments") or ())
    names = {d["Name"] for d in departments}
    parents = {q.get("ParentQueue") or DEFAULT_DEPARTMENT for q in table.get("Queues") or ()}
    own = {q["Name"] for q in table.get("Queues") or ()}
    for at, d in enumerate(departments):
        weight = float(d.get("DeservedGPUs") or 0)
        yield Queue(
            d["Name"],
            quota=(UNLIMITED, UNLIMITED, _gpus(d.get("DeservedGPUs"), 0)),
            limit=(_cpus(d.get("MaxAllowedCPUs")), UNLIMITED, _gpus(d.get("MaxAllowedGPUs") or None, UNLIMITED)),
            weight=(1.0, 1.0, weight),
            created=float(at),
        )
    for at, name in enumerate(sorted(parents - names - own)):
        yield Queue(name, quota=(UNLIMITED,) * 3, created=100.0 + at)
    for at, q in enumerate(table.get("Queues") or ()):
        yield _queue(q, 200.0 + at)


def _queue(q: Mapping[str, Any], created: float) -> Queue:
    memory = q.get("DeservedMemory")
    memory_limit = q.get("MaxAllowedMemory")
    cpu = q.get("DeservedCPUs")
    return Queue(
        q["Name"],
        parent=q.get("ParentQueue") or DEFAULT_DEPARTMENT,
        quota=(
            UNLIMITED if cpu is None else int(cpu),
            UNLIMITED if memory is None else int(memory) * MB,
            _gpus(q.get("DeservedGPUs"), 0),
        ),
        limit=(
            _cpus(q.get("MaxAllowedCPUs")),
            UNLIMITED if memory_limit is None else int(memory_limit) * MB,
            _gpus(q.get("MaxAllowedGPUs") or None, UNLIMITED),
        ),
        weight=(1.0, 1.0, float(q.get("GPUOverQuotaWeight") or 0)),
        priority=100 if q.get("Priority") is None else int(q["Priority"]),
        created=created,
    )


def _gpus(value: Any, default: int) -> int:
    if value is None:
        return default
    return UNLIMITED if value < 0 else round(float(value) * WHOLE_GPU)


def _cpus(value: Any) -> int:
    return UNLIMITED if value is None else int(value)


def _jobs(table: Mapping[str, Any]) -> list[TableJob]:
    specs = sorted(table.get("Jobs") or (), key=lambda j: -int(j.get("Priority") or 0))
    return [_job(j, len(specs) - at) for at, j in enumerate(specs)]


def _job(spec: Mapping[str, Any], minutes: int) -> TableJob:
    tasks = spec.get("Tasks") or ()
    priority = int(spec.get("Priority") or 0)
    word = str(spec.get("Preemptibility") or "").lower()
    job = TableJob(
        name=spec["Name"],
        queue=spec["QueueName"],
        priority=priority,
        preemptible=word == "preemptible" if word else priority < 100,
        created=NOW - 60.0 * float(spec.get("JobAgeInMinutes") or minutes),
        pod_sets=tuple(_pod_sets(spec.get("RootSubGroupSet"), len(tasks))),
        deleted=bool(spec.get("DeleteJobInTest")),
        stale=NOW - float(spec.get("StaleDuration") or 3600.0),
        ready=not spec.get("JobNotReadyForSsn"),
    )
    for at, t in enumerate(tasks):
        state = str(t.get("State") or "Pending")
        node = str(t.get("NodeName") or "")
        status = STATUS_OF_STATE.get(state) or Status(state)
        job.tasks.append(
            TableTask(
                name=str(t.get("Name") or f"{job.name}-{at}"),
                job=job,
                shape=_shape(spec, t),
                status=status,
                pod_set=str(t.get("SubGroupName") or ""),
                node="" if status in (Status.PENDING, Status.GATED) else node,
                devices=(),
                priority=int(t.get("Priority") or 0),
            )
        )
    return job


def _pod_sets(tree: Any, count: int) -> Iterator[PodSet]:
    if not tree:
        yield PodSet("", count)
    elif "$defaultSubGroup" in tree:
        yield PodSet("", int(tree["$defaultSubGroup"]["minAvailable"]))
    else:
        for p in tree.get("podSets") or ():
            yield PodSet(str(p["name"]), int(p["minAvailable"]))
        for g in tree.get("subGroups") or ():
            yield from _pod_sets(g, count)


def _shape(spec: Mapping[str, Any], task: Mapping[str, Any]) -> Shape:
    best_effort = bool(spec.get("IsBestEffortJob"))
    task_gpus = task.get("RequiredGPUs")
    gpus = float(task_gpus if task_gpus is not None else spec.get("RequiredGPUsPerTask") or 0)
    memory = int(spec.get("RequiredGpuMemory") or 0)
    devices = int(spec.get("RequiredMultiFractionDevicesPerTask") or 1)
    is_whole = gpus == int(gpus)
    nodes = task.get("NodeAffinityNames") or ()
    affinity = ((Requirement("kubernetes.io/hostname", "In", tuple(nodes)),),) if nodes else ()
    return Shape(
        cpu=0 if best_effort else int(float(spec.get("RequiredCPUsPerTask") or 1) * CORE),
        memory=0 if best_effort else int(spec.get("RequiredMemoryPerTask") or GB),
        gpus=int(gpus) if is_whole else 0,
        portion=0 if is_whole else round(gpus * 100),
        gpu_memory=memory,
        devices=devices if memory or not is_whole else 0,
        affinity=affinity,
    )


def _assign_devices(table: Mapping[str, Any], nodes: tuple[Node, ...], jobs: list[TableJob]) -> None:
    """Running pods get card indices: named groups first, one card per name; then the others, on the emptiest."""
    names: dict[str, dict[str, int]] = {n.name: {} for n in nodes}
    used = {n.name: [0] * n.gpus for n in nodes}
    specs = {j["Name"]: j for j in table.get("Jobs") or ()}
    placed = [t for j in jobs for t in j.tasks if t.node in used and t.shape.wants_gpu]
    placed = [t for t in placed if t.status not in (Status.SUCCEEDED, Status.FAILED)]
    for t in placed:
        at = t.job.tasks.index(t)
        groups = (specs[t.job.name].get("Tasks") or ())[at].get("GPUGroups") or ()
        if t.shape.is_fractional and groups:
            group_devices = names[t.node]
            for g in groups:
                group_devices.setdefault(g, len(group_devices))
            t.devices = tuple(group_devices[g] for g in groups)
            _use_devices(used[t.node], t)
    for t in placed:
        if not t.devices:
            used_per_device = used[t.node]
            t.devices = tuple(
                sorted(range(len(used_per_device)), key=lambda d: (used_per_device[d], d))[: t.shape.device_count]
            )
            _use_devices(used_per_device, t)


def _use_devices(used_per_device: list[int], t: TableTask) -> None:
    for d in t.devices:
        used_per_device[d] += WHOLE_GPU if t.shape.gpus else t.shape.portion or t.shape.gpu_memory
