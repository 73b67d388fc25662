"""A snapshot: everything a planning cycle may know, as values.

`Node`, `Queue`, `Gang` (of `PodSet`s and `Task`s) and the settings, at one moment `now`. `from_objects.py` makes
them from objects, `planner.py` turns them into decisions, and `dumps`/`loads` write and read files. The same snapshot always gives the same
plan, so a snapshot is a bug report. Nothing here knows about Kubernetes objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from rowlock.scheduling.model.resources import NO_LIMIT, WHOLE_GPU, ZERO, ResourceVector


class Status(StrEnum):
    """A task's state, as in KAI. A snapshot never holds Allocated or Pipelined: those are plans."""

    PENDING = "Pending"
    GATED = "Gated"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One node-affinity expression; `op` is In, NotIn, Exists, DoesNotExist, Gt or Lt. `field`: it matches metadata.name, not a label."""

    key: str
    op: str
    values: tuple[str, ...] = ()
    field: bool = False


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node (`v1.Taint`); `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty `key` with Exists tolerates everything; an empty `effect` means every effect."""

    key: str = ""
    op: str = "Equal"
    value: str = ""
    effect: str = ""


Alternatives = tuple[tuple[Requirement, ...], ...]
"""The requirements of one alternative must all hold."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod requests. Two pods of equal shape are interchangeable for placement.

    `gpus`: whole GPUs; or `devices` GPUs with `portion` hundredths or `gpu_memory` MiB of each.
    """

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    portion: int = 0
    gpu_memory: int = 0
    devices: int = 0
    extras: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: Alternatives = ()
    """Empty = anywhere."""
    tolerations: tuple[Toleration, ...] = ()
    pool: str = ""
    volumes: tuple[Alternatives, ...] = ()
    """For each of the pod's volumes that not every node can mount: the requirements on nodes. All must hold."""
    new_volumes: tuple[Alternatives, ...] = ()
    """The same for volumes that are provisioned once the pod has a node."""
    unsupported: str = ""
    """A message about a requested feature that is not supported; "" = none. Such a pod is held, never silently placed."""

    waits: str = ""
    """A message about what must exist before the pod can be placed; "" = nothing."""

    @property
    def held_back(self) -> str:
        """Why the pod is not placed at all; "" if it is."""
        return self.unsupported or self.waits

    @property
    def is_fractional(self) -> bool:
        return bool(self.portion or self.gpu_memory)

    @property
    def wants_gpu(self) -> bool:
        return bool(self.gpus or self.devices)

    @property
    def device_count(self) -> int:
        """Number of GPUs that the pod uses, whole or in part."""
        return self.gpus or self.devices


@dataclass(frozen=True, slots=True)
class Task:
    """One pod. `devices`: indices of its node's GPUs, once it has a node."""

    uid: str
    namespace: str
    name: str
    shape: Shape
    status: Status = Status.PENDING
    pod_set: str = ""
    node: str = ""
    devices: tuple[int, ...] = ()
    priority: int = 0
    """Order inside the gang, higher first (label kai.scheduler/task-priority; a master before its workers)."""
    created: float = 0.0
    verdict: str = field(default="", compare=False)
    """The message of its PodScheduled=False condition, "" without one. It is written again only when it changes."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A sub-group: at least `minimum` of its tasks run together with the other sets' minimum, or none."""

    name: str
    minimum: int


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are scheduled together: a PodGroup, or one pod without a group (`bare`)."""

    namespace: str
    name: str
    uid: str
    queue: str
    tasks: tuple[Task, ...]
    pod_sets: tuple[PodSet, ...] = (PodSet("", 1),)
    priority: int = 50
    preemptible: bool = True
    created: float = 0.0
    bare: bool = False
    foreign: bool = False
    """Placed by another scheduler: it occupies nodes, belongs to no queue, and is never changed."""
    started: float = field(default=0.0, compare=False)
    """When the gang last began to run; protects it for its queue's min-runtime."""
    stale: float = 0.0
    """Since when it runs with fewer pods than its minimum (seconds since the epoch); 0 = it does not."""
    delay: float = 0.0
    """It may evict others only after waiting this long (annotation kai.scheduler/preemption-delay)."""
    verdict: str = field(default="", compare=False)
    """The explanation in its PodGroup's status; "" = none."""
    owner: tuple[str, str, str, str] = ("", "", "", "")
    """apiVersion, kind, name and uid of the job, which gets the same events as its gang."""
    grace: float | None = None
    """Its own staleness grace in seconds; None = the cluster's."""
    lasts: float = 0.0
    """Its declared maximum runtime in seconds; 0 = none declared."""
    required: str = ""
    """All its pods go to nodes with the same value of this label."""
    preferred: str = ""
    """A label whose value should be the same for all its nodes, if possible."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """The name for messages; a bare pod's own name."""
        return f"{self.namespace}/{self.name.removeprefix('pod/')}"


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `gpu_memory`: MiB per GPU; `pods`: its allocatable number of pods."""

    name: str
    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    gpu_memory: int = 100
    pods: int = 110
    extras: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    retired: bool = False
    """Unschedulable for good: left from an earlier configuration of the cluster, and kept for the pods on it."""
    ready: bool = True
    unready_since: float = 0.0
    """Since when it is not ready (seconds since the epoch); 0 = it is ready, or unknown."""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """A department or project. Amounts are (millicores, bytes, hundredths of a GPU); -1 = unlimited."""

    name: str
    parent: str = ""
    quota: ResourceVector = ZERO
    limit: ResourceVector = NO_LIMIT
    weight: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Over-quota weights per resource: its part of what remains after all quotas."""
    priority: int = 100
    created: float = 0.0
    usage: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """For time-based fair share: its decayed fraction of the cluster's usage per resource, 0 to 1."""
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    order: tuple[str, ...] = ()
    """Uids of jobs that are tried first among those of their priority, in this order: `rowlock queue move`."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of the planner."""

    gpu: str = "pack"
    cpu: str = "pack"
    cards: str = ""
    """pack or spread fractions over a node's GPUs; "" = as `gpu`."""
    actions: tuple[str, ...] = ("allocate", "consolidate", "reclaim", "preempt", "reserve", "stale")
    max_consolidated: int = 16
    """Jobs that consolidation may move for one pending gang; -1 = any number, 0 = never consolidate."""
    stale_grace: float = 60.0
    """Seconds a gang may run below its minimum; negative = for ever."""
    node_grace: float = 5.0
    """Seconds that a node may be missing before the gangs on it are evicted."""
    unready_grace: float = 40.0
    """The same for a node that exists and is not ready: it often comes back."""
    usage_weight: float = 1.0
    """The factor k of time-based fair share."""
    half_life: float = 0.0
    """Half-life of a queue's past usage in seconds; 0 = past usage does not count."""
    reserve_after: float = 300.0
    """Seconds that an entitled gang waits before nodes are reserved for it; 0 = never."""


@dataclass(frozen=True, slots=True)
class PipelinedGang:
    """A gang whose pods were pipelined to nodes in an earlier cycle: (pod, node) pairs to try first (as `nominatedNodeName`)."""

    gang: str
    nodes: tuple[tuple[str, str], ...]
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """Nodes reserved for a gang that has waited long: gangs that cannot be evicted for it are not placed there (`reserve.py`)."""

    gang: str
    nodes: tuple[str, ...]
    since: float
    pool: str = ""
    """The gang's node pool; each pool has at most one reservation."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of a planning cycle. `now`: seconds since the epoch; `reservations`: pipelined gangs of earlier cycles; `earmarks`:
    nodes reserved for gangs that have waited long."""

    now: float
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    gangs: tuple[Gang, ...] = ()
    reservations: tuple[PipelinedGang, ...] = ()
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    earmarks: tuple[NodeReservation, ...] = ()
    lost: tuple[tuple[str, float], ...] = ()
    """(node with running pods that is missing or not ready, since when)."""


def dumps(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON."""
    return msgspec.json.encode(snapshot)


def loads(text: bytes | str) -> Snapshot:
    """The inverse of `dumps`. Raises msgspec.ValidationError, which names the field that is wrong."""
    snapshot = msgspec.json.decode(text, type=Snapshot)
    error = next(_find_errors(snapshot), "") or _find_unknown_field(
        msgspec.json.decode(text), msgspec.to_builtins(snapshot), "$"
    )
    if error:
        raise msgspec.ValidationError(error)
    return snapshot


def _find_unknown_field(raw: Any, decoded: Any, path: str) -> str:
    """An error message for the first unknown field; "" = none. Ignoring it would make the replay differ."""
    if isinstance(raw, dict) and isinstance(decoded, dict):
        for key, value in raw.items():
            if key not in decoded:
                return f"Unknown field `{key}` - at `{path}`"
            if error := _find_unknown_field(value, decoded[key], f"{path}.{key}"):
                return error
    if isinstance(raw, list):
        for i, value in enumerate(raw):
            if error := _find_unknown_field(value, decoded[i], f"{path}[{i}]"):
                return error
    return ""


def _find_errors(snapshot: Snapshot) -> Iterator[str]:
    """Error messages for values that the types allow but that are invalid."""
    for unknown in set(snapshot.settings.actions) - set(SchedulerSettings().actions):
        yield f"there is no action `{unknown}`; there are {', '.join(SchedulerSettings().actions)} - at `$.settings.actions`"
    for field_ in ("gpu", "cpu", "cards"):
        if getattr(snapshot.settings, field_) not in ("pack", "spread", *(("",) if field_ == "cards" else ())):
            yield f"must be pack or spread - at `$.settings.{field_}`"
    for part, names in (
        ("nodes", [n.name for n in snapshot.nodes]),
        ("queues", [q.name for q in snapshot.queues]),
        ("gangs", [g.key for g in snapshot.gangs]),
    ):
        if duplicate := next((n for n in names if names.count(n) > 1), "") if len(set(names)) < len(names) else "":
            yield f"`{duplicate}` is there twice - at `$.{part}`"
    for i, n in enumerate(snapshot.nodes):
        for field_ in ("cpu", "memory", "gpus", "gpu_memory", "pods"):
            if getattr(n, field_) < 0:
                yield f"must be no less than 0 - at `$.nodes[{i}].{field_}`"
    for i, g in enumerate(snapshot.gangs):
        for j, t in enumerate(g.tasks):
            s = t.shape
            if (
                min(s.cpu, s.memory, s.gpus, s.gpu_memory, s.devices, *t.devices, 0) < 0
                or not 0 <= s.portion <= WHOLE_GPU
            ):
                yield f"a request or a card below 0, or a portion above {WHOLE_GPU} - at `$.gangs[{i}].tasks[{j}]`"
