"""KAI's test tables as snapshots: what a converted Go table says, with the defaults its fake builders add.

A `Case` is mutable on purpose: it is the little cluster that the rounds of an integration table play on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.scheduling.amounts import UNLIMITED, WHOLE
from rowlock.scheduling.snapshot import (
    Gang,
    Node,
    PodSet,
    Queue,
    Requirement,
    Settings,
    Shape,
    Snapshot,
    Status,
    Task,
)

NOW = 10_000_000.0
CORE, MB, GB = 1000, 10**6, 10**9
DEFAULT_DEPARTMENT = "default"
UNSUPPORTED_KEYS = {
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
STATES = {"Binding": Status.BOUND, "Bound": Status.BOUND}
ACTIONS = {
    "allocate": "allocate",
    "consolidation": "consolidate",
    "reclaim": "reclaim",
    "preempt": "preempt",
    "stalegangeviction": "stale",
}


def not_applicable(value: Any) -> str:
    """The feature outside the fence that a table uses, "" when it uses none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in UNSUPPORTED_KEYS and inner:
                return UNSUPPORTED_KEYS[key]
            if key == "topology" and inner:
                return "topology"
            if found := not_applicable(inner):
                return found
    elif isinstance(value, list):
        for inner in value:
            if found := not_applicable(inner):
                return found
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
    sets: tuple[PodSet, ...]
    deleted: bool
    stale: float
    ready: bool
    tasks: list[TableTask] = field(default_factory=list)


@dataclass(slots=True)
class Case:
    """A table, ready to be played."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    jobs: list[TableJob]
    settings: Settings

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
        job.sets,
        job.priority,
        job.preemptible,
        job.created,
        stale=job.stale,
    )


def read(table: Mapping[str, Any]) -> Case:
    """One table; see `not_applicable` for those that cannot be read."""
    nodes = tuple(_node(name, spec or {}) for name, spec in (table.get("Nodes") or {}).items())
    jobs = _jobs(table)
    _assign_cards(table, nodes, jobs)
    return Case(nodes, tuple(_queues(table)), jobs, _settings(table))


def _node(name: str, spec: Any) -> Node:
    given = spec if isinstance(spec, dict) else {}
    labels = given.get("Labels") or {}
    return Node(
        name=name,
        cpu=int(given.get("CPUMillis") or 20_000) * CORE,
        memory=int(given.get("CPUMemory") or 20 * GB),
        gpus=int(given.get("GPUs") or 0),
        gpu_memory=int(given.get("GPUMemory") or 100),
        pods=int(given.get("MaxTaskNum") or 110),
        labels=tuple(sorted({**labels, "kubernetes.io/hostname": name}.items())),
    )


def _settings(table: Mapping[str, Any]) -> Settings:
    path = str(table.get("_file", ""))
    act = path.rpartition("actions/")[2].partition("/")[0]
    mocks = table.get("Mocks") or {}
    conf = mocks.get("SchedulerConf") or {}
    actions = tuple(ACTIONS.values()) if act not in ACTIONS else (ACTIONS[act],)
    if conf.get("Actions"):
        actions = tuple(ACTIONS[a.strip()] for a in conf["Actions"].split(","))
    order = {a: i for i, a in enumerate(("allocate", "consolidate", "reclaim", "preempt", "stale"))}
    placing = {"gpu": "pack", "cpu": "pack", "cards": "pack"}
    for tier in conf.get("Tiers") or ():
        for plugin in tier.get("Plugins") or ():
            if plugin.get("Name") == "gpuspread":
                placing["cards"] = "spread"
            if plugin.get("Name") == "nodeplacement":
                for key, value in (plugin.get("Arguments") or {}).items():
                    placing[key] = "spread" if value == "spread" else "pack"
    return Settings(
        gpu=placing["gpu"],
        cpu=placing["cpu"],
        cards=placing["cards"],
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
    most = q.get("MaxAllowedMemory")
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
            UNLIMITED if most is None else int(most) * MB,
            _gpus(q.get("MaxAllowedGPUs") or None, UNLIMITED),
        ),
        weight=(1.0, 1.0, float(q.get("GPUOverQuotaWeight") or 0)),
        priority=100 if q.get("Priority") is None else int(q["Priority"]),
        created=created,
    )


def _gpus(value: Any, absent: int) -> int:
    if value is None:
        return absent
    return UNLIMITED if value < 0 else round(float(value) * WHOLE)


def _cpus(value: Any) -> int:
    return UNLIMITED if value is None else int(value)


def _jobs(table: Mapping[str, Any]) -> list[TableJob]:
    given = sorted(table.get("Jobs") or (), key=lambda j: -int(j.get("Priority") or 0))
    return [_job(j, len(given) - at) for at, j in enumerate(given)]


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
        sets=tuple(_sets(spec.get("RootSubGroupSet"), len(tasks))),
        deleted=bool(spec.get("DeleteJobInTest")),
        stale=NOW - float(spec.get("StaleDuration") or 3600.0),
        ready=not spec.get("JobNotReadyForSsn"),
    )
    for at, t in enumerate(tasks):
        state = str(t.get("State") or "Pending")
        node = str(t.get("NodeName") or "")
        status = STATES.get(state) or Status(state)
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


def _sets(tree: Any, count: int) -> Iterator[PodSet]:
    if not tree:
        yield PodSet("", count)
    elif "$defaultSubGroup" in tree:
        yield PodSet("", int(tree["$defaultSubGroup"]["minAvailable"]))
    else:
        for p in tree.get("podSets") or ():
            yield PodSet(str(p["name"]), int(p["minAvailable"]))
        for g in tree.get("subGroups") or ():
            yield from _sets(g, count)


def _shape(spec: Mapping[str, Any], task: Mapping[str, Any]) -> Shape:
    best_effort = bool(spec.get("IsBestEffortJob"))
    asked = task.get("RequiredGPUs")
    gpus = float(asked if asked is not None else spec.get("RequiredGPUsPerTask") or 0)
    memory = int(spec.get("RequiredGpuMemory") or 0)
    devices = int(spec.get("RequiredMultiFractionDevicesPerTask") or 1)
    whole = gpus == int(gpus)
    nodes = task.get("NodeAffinityNames") or ()
    affinity = ((Requirement("kubernetes.io/hostname", "In", tuple(nodes)),),) if nodes else ()
    return Shape(
        cpu=0 if best_effort else int(float(spec.get("RequiredCPUsPerTask") or 1) * CORE),
        memory=0 if best_effort else int(spec.get("RequiredMemoryPerTask") or GB),
        gpus=int(gpus) if whole else 0,
        portion=0 if whole else round(gpus * 100),
        gpu_memory=memory,
        devices=devices if memory or not whole else 0,
        affinity=affinity,
    )


def _assign_cards(table: Mapping[str, Any], nodes: tuple[Node, ...], jobs: list[TableJob]) -> None:
    """Running pods get card indices: named groups first, one card per name; then the others, on the emptiest."""
    names: dict[str, dict[str, int]] = {n.name: {} for n in nodes}
    used = {n.name: [0] * n.gpus for n in nodes}
    specs = {j["Name"]: j for j in table.get("Jobs") or ()}
    placed = [t for j in jobs for t in j.tasks if t.node in used and t.shape.wants_gpu]
    placed = [t for t in placed if t.status not in (Status.SUCCEEDED, Status.FAILED)]
    for t in placed:
        at = t.job.tasks.index(t)
        groups = (specs[t.job.name].get("Tasks") or ())[at].get("GPUGroups") or ()
        if t.shape.fractional and groups:
            known = names[t.node]
            for g in groups:
                known.setdefault(g, len(known))
            t.devices = tuple(known[g] for g in groups)
            _use(used[t.node], t)
    for t in placed:
        if not t.devices:
            room = used[t.node]
            t.devices = tuple(sorted(range(len(room)), key=lambda d: (room[d], d))[: t.shape.cards])
            _use(room, t)


def _use(room: list[int], t: TableTask) -> None:
    for d in t.devices:
        room[d] += WHOLE if t.shape.gpus else t.shape.portion or t.shape.gpu_memory
