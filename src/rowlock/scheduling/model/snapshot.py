"""A snapshot: everything a planning cycle may know, as values.

`Node`, `Queue`, `Gang` (of `PodSet`s and `Task`s) and the settings, at one moment `now`. `from_objects.py` makes
them from objects, `planner.py` turns them into decisions, and `dumps`/`loads` carry them to a file and back: same snapshot, same
plan, for ever, so a snapshot is a bug report. Nothing here knows about Kubernetes objects.
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
    """One node-affinity expression; `op` is In, NotIn, Exists, DoesNotExist, Gt or Lt. `field` asks metadata.name."""

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
    """What a pod asks for. Two pods of equal shape are interchangeable for placement.

    `gpus` whole devices; or `devices` cards with `portion` hundredths or `gpu_memory` MiB of each.
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
    """For each of the pod's volumes that not every node can mount: where it can be. All must hold."""
    new_volumes: tuple[Alternatives, ...] = ()
    """The same for volumes that are made once the pod has a node."""
    unsupported: str = ""
    """A sentence: something this pod asks that we do not do. It is held, never silently placed."""

    waits: str = ""
    """A sentence: something that must be there before the pod can be placed."""

    @property
    def held_back(self) -> str:
        """Why no node is looked for; "" = one is."""
        return self.unsupported or self.waits

    @property
    def is_fractional(self) -> bool:
        return bool(self.portion or self.gpu_memory)

    @property
    def wants_gpu(self) -> bool:
        return bool(self.gpus or self.devices)

    @property
    def device_count(self) -> int:
        """On how many devices it sits."""
        return self.gpus or self.devices


@dataclass(frozen=True, slots=True)
class Task:
    """One pod. `devices` are indices into its node's cards, once it has a node."""

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
    """The message of its PodScheduled=False condition, "" without one: written again only when it changes."""


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
    """Bound by somebody else: occupies nodes, belongs to no queue, is never touched."""
    started: float = field(default=0.0, compare=False)
    """When the gang last began to run; protects it for its queue's min-runtime."""
    stale: float = 0.0
    """Since when it runs with fewer pods than its minimum; 0 = it does not."""
    delay: float = 0.0
    """It may evict others only after waiting this long (annotation kai.scheduler/preemption-delay)."""
    verdict: str = field(default="", compare=False)
    """The sentence on its PodGroup, "" when it was told nothing."""
    owner: tuple[str, str, str, str] = ("", "", "", "")
    """apiVersion, kind, name and uid of the job, which gets the same events as its gang."""
    grace: float | None = None
    """Its own staleness grace in seconds; None = the cluster's."""
    lasts: float = 0.0
    """It declares that it runs no longer than this, in seconds; 0 = it declares nothing."""
    required: str = ""
    """All its pods go to nodes with the same value of this label."""
    preferred: str = ""
    """The same, if it can be had."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """For sentences: a bare pod goes by its own name."""
        return f"{self.namespace}/{self.name.removeprefix('pod/')}"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. `gpu_memory` is MiB per card; `pods` its allocatable pod count."""

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
    """Unschedulable for good: of an earlier start of the cluster, there for the pods that are on it."""
    ready: bool = True
    unready_since: float = 0.0
    """Since when it is not ready; 0 = it is, or does not say."""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    """A department or project. Amounts are (millicores, bytes, hundredths of a GPU); -1 = unlimited."""

    name: str
    parent: str = ""
    quota: ResourceVector = ZERO
    limit: ResourceVector = NO_LIMIT
    weight: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Over-quota weight: its part of what nobody's quota claims."""
    priority: int = 100
    created: float = 0.0
    usage: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Time-based fair share: its decayed part of what the cluster gave, 0..1 per resource."""
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How the cluster wants to be planned."""

    gpu: str = "pack"
    cpu: str = "pack"
    cards: str = ""
    """pack or spread fractions over a node's cards; "" = as `gpu`."""
    actions: tuple[str, ...] = ("allocate", "consolidate", "reclaim", "preempt", "reserve", "stale")
    max_consolidated: int = 16
    """Jobs that consolidation may move for one pending gang; -1 = any number, 0 = never consolidate."""
    stale_grace: float = 60.0
    """Seconds a gang may run below its minimum; negative = for ever."""
    node_grace: float = 5.0
    """Seconds a node may be away before the gangs on it start again elsewhere."""
    unready_grace: float = 40.0
    """The same for a node that is there and says, or is said, not to be ready: it often comes back."""
    usage_weight: float = 1.0
    """k of time-based fair share."""
    half_life: float = 0.0
    """Seconds in which what a queue used counts half; 0 = the past does not count."""
    reserve_after: float = 300.0
    """Seconds that an entitled gang waits for room before nodes are kept for it; 0 = never."""


@dataclass(frozen=True, slots=True)
class PipelinedGang:
    """Nodes nominated in an earlier cycle: this gang's pods (by name) go to them when they are free (`nominatedNodeName`)."""

    gang: str
    nodes: tuple[tuple[str, str], ...]
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """Nodes that are kept for a gang which waited long: gangs that may not be evicted for it are not placed there (`reserve.py`)."""

    gang: str
    nodes: tuple[str, ...]
    since: float
    pool: str = ""
    """The gang's node pool: each pool keeps nodes for one gang at a time."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one planning cycle knows. `now` is in seconds since the epoch; `reservations` are the pipelined gangs of earlier
    cycles, `earmarks` the nodes reserved for gangs that wait long."""

    now: float
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    gangs: tuple[Gang, ...] = ()
    reservations: tuple[PipelinedGang, ...] = ()
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    earmarks: tuple[NodeReservation, ...] = ()
    lost: tuple[tuple[str, float], ...] = ()
    """Nodes that went away, or became unready, under running pods, and since when."""


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
    """Where a word stands that no snapshot has: it would be ignored, and the replay be another story."""
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
    """What the types do not say."""
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
