"""Queues, gangs, their pod sets and tasks with a session's counters of running, pending and held resources."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.scheduling.model.resources import ZERO, ResourceVector
from rowlock.scheduling.model.snapshot import (
    Gang,
    Queue,
    Status,
    Task,
)

ACTIVE_STATUSES = frozenset({Status.ALLOCATED, Status.PIPELINED, Status.BOUND, Status.RUNNING})
ALLOCATED_STATUSES = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING})
"""Statuses of tasks that hold resources and count against their queue."""
HOLDING_STATUSES = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING, Status.RELEASING})

Placement = tuple[str, tuple[int, ...]]
"""(name of a node, indices of its GPUs)."""


class QueueState:
    """A queue with its running totals; `allocated` follows tasks that hold resources or are pipelined."""

    __slots__ = (
        "allocatable_share",
        "allocated",
        "allocated_non_preemptible",
        "children",
        "fair_share",
        "gangs",
        "path",
        "places",
        "queue",
        "quota_reservations",
        "rank",
        "requested",
        "running_gangs",
        "running_priorities",
        "usage",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.places = {uid: place for place, uid in enumerate(queue.order)}
        """Uid of a job → its place in the queue's `order`."""
        self.children: list[QueueState] = []
        self.path: tuple[QueueState, ...] = (self,)
        """The queue, its parent, ... up to its root; empty if a parent is missing or the parents form a cycle."""
        self.allocated: ResourceVector = ZERO
        self.allocated_non_preemptible: ResourceVector = ZERO
        """The non-preemptible part of `allocated`."""
        self.requested: ResourceVector = ZERO
        """Resources of allocated and pending tasks together."""
        self.fair_share: ResourceVector = ZERO
        self.allocatable_share: ResourceVector = ZERO
        """What it may hold without being reclaimable: the larger of quota and fair share, at most the limit."""
        self.gangs: dict[str, GangState] = {}
        self.running_gangs: dict[str, GangState] = {}
        """Gangs that had active pods when the cycle began, and gangs placed in this cycle."""
        self.running_priorities: dict[int, int] = {}
        """Priority → number of `running_gangs` with it."""
        self.quota_reservations: tuple[tuple[str, ResourceVector, bool], ...] = ()
        """(gang, amount of the limit reserved for it, whether that much of the quota is reserved too), of gangs with reserved nodes."""
        self.rank = 0
        self.usage = queue.usage
        """Its recent, decayed fraction of the cluster per resource."""

    def add_running(self, state: GangState) -> bool:
        """Add the gang to `running_gangs`; False if it was there."""
        if state.gang.key in self.running_gangs:
            return False
        self.running_gangs[state.gang.key] = state
        self.running_priorities[state.gang.priority] = self.running_priorities.get(state.gang.priority, 0) + 1
        return True

    def remove_running(self, key: str) -> None:
        state = self.running_gangs.pop(key, None)
        if state is not None:
            count = self.running_priorities[state.gang.priority] - 1
            self.running_priorities[state.gang.priority] = count
            if not count:
                del self.running_priorities[state.gang.priority]


class PodSetState:
    """A pod set's counters."""

    __slots__ = (
        "active_count",
        "alive_count",
        "allocated_count",
        "minimum",
        "name",
        "pending_count",
        "succeeded_count",
        "tasks",
    )

    def __init__(self, name: str, minimum: int) -> None:
        self.name, self.minimum = name, minimum
        self.tasks: list[TaskState] = []
        self.active_count = self.allocated_count = self.alive_count = self.pending_count = self.succeeded_count = 0

    def count_status(self, status: Status, sign: int) -> None:
        if status in ACTIVE_STATUSES:
            self.active_count += sign
            self.alive_count += sign
            if status in ALLOCATED_STATUSES:
                self.allocated_count += sign
        elif status is Status.PENDING:
            self.pending_count += sign
            self.alive_count += sign
        elif status is Status.SUCCEEDED:
            self.succeeded_count += sign

    @property
    def shortfall(self) -> int:
        """How many more tasks must be placed for the minimum; succeeded tasks count as placed."""
        return self.minimum - self.active_count - self.succeeded_count


class GangState:
    """A gang with its pod sets and queue. `domain`: (label, value) of the nodes to which its pods are restricted; `has_victims`: pods are
    evicted for it in this cycle."""

    __slots__ = ("domain", "gang", "has_victims", "pod_sets", "queue")

    def __init__(self, gang: Gang, queue: QueueState | None) -> None:
        self.gang, self.queue = gang, queue
        self.domain = ("", "")
        self.has_victims = False
        self.pod_sets: dict[str, PodSetState] = {p.name: PodSetState(p.name, p.minimum) for p in gang.pod_sets}

    @property
    def tasks(self) -> Iterator[TaskState]:
        for s in self.pod_sets.values():
            yield from s.tasks

    @property
    def pool(self) -> str:
        """The node pool of the gang; all its tasks are in one."""
        return self.gang.tasks[0].shape.pool if self.gang.tasks else ""

    @property
    def active_count(self) -> int:
        return sum(s.active_count for s in self.pod_sets.values())

    @property
    def pending_count(self) -> int:
        return sum(s.pending_count for s in self.pod_sets.values())

    def has_pending_tasks(self) -> bool:
        """Whether some pod is pending or gated."""
        return any(s.pending_count for s in self.pod_sets.values()) or any(t.status is Status.GATED for t in self.tasks)

    def elasticity(self) -> int:
        """0 below its minimum, 1 exactly at it, 2 above it."""
        above = False
        for s in self.pod_sets.values():
            if s.shortfall > 0:
                return 0
            above = above or s.shortfall < 0
        return 2 if above else 1


class TaskState:
    """A task's current status and place in the plan. `origin`: the place from which it was evicted and which it still occupies."""

    __slots__ = ("devices", "gang", "node", "origin", "pod_set", "status", "task")

    def __init__(self, task: Task, gang: GangState) -> None:
        self.task, self.gang = task, gang
        self.pod_set = gang.pod_sets.get(task.pod_set) or gang.pod_sets.setdefault(
            task.pod_set, PodSetState(task.pod_set, 0)
        )
        self.status, self.node, self.devices = task.status, task.node, task.devices
        self.origin: Placement | None = None
