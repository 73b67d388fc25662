"""Which gang is considered next: queues compete level by level, and the gangs of a leaf queue are sorted.

Gangs left half-bound by a crash come first, then gangs pipelined in an earlier cycle; then the queues compete with their best candidate:
below fair share, below quota, priority, smallest dominant share, age. In a leaf, equal gangs (same shapes, priority, elasticity) form a
group, so that one failure dismisses the whole group.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rowlock.scheduling.model.gang_state import GangState, QueueState, TaskState
from rowlock.scheduling.model.resources import UNLIMITED, ZERO, ResourceVector
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Status

QueueKey = tuple[float, ...]
GangKey = tuple[int, int, int, float, str]


def gang_key(state: GangState) -> GangKey:
    """The sort key of gangs in one queue: priority, then the queue's own order, then as in KAI: gangs below their minimum, then age;
    smallest first."""
    gang, places = state.gang, state.queue.places if state.queue is not None else {}
    place = places.get(gang.owner[3], len(places)) if places else 0
    return (-gang.priority, place, state.elasticity(), gang.created, gang.key)


def tasks_to_allocate(state: GangState) -> list[TaskState]:
    """The tasks to place in the next attempt: all that pod sets lack of their minimum or, if nothing is lacking, one more pod."""
    tasks: list[TaskState] = []
    for s in state.pod_sets.values():
        if s.shortfall > 0:
            pending = [t for t in s.tasks if t.status is Status.PENDING]
            tasks += pending[: s.shortfall]
    if tasks or any(s.shortfall > 0 for s in state.pod_sets.values()):
        return tasks
    growable_sets = [s for s in state.pod_sets.values() if s.pending_count]
    if not growable_sets:
        return []
    smallest_set = min(
        growable_sets, key=lambda s: (s.active_count / s.minimum if s.minimum else s.active_count, s.name)
    )
    return [next(t for t in smallest_set.tasks if t.status is Status.PENDING)]


def queue_key(
    session: Session, q: QueueState, queue_allocated: ResourceVector, job_request: ResourceVector
) -> QueueKey:
    """The sort key of a queue, smallest first. `queue_allocated`: what it holds; `job_request`: what its candidate requests."""
    fair_share, allocatable_share, quota, total = q.fair_share, q.allocatable_share, q.queue.quota, session.total
    over_fair_share, over_quota, forbidden = 1.0, 0.0, 0.0
    share_with_job = share_without_job = 0.0
    for r in (0, 1, 2):
        allocated, requested, bound = queue_allocated[r], job_request[r], allocatable_share[r]
        after = allocated + requested
        if fair_share[r] >= allocated:
            over_fair_share = 0.0
        if after > quota[r] != UNLIMITED:
            over_quota = 1.0
        if bound == 0 and requested > 0:
            forbidden = 1.0
        unit = (total[r] if bound == UNLIMITED else bound) or max(1, total[r]) / 1000.0
        share_with_job = max(share_with_job, after / unit)
        share_without_job = max(share_without_job, allocated / unit)
    return (
        over_fair_share,
        over_quota,
        float(-q.queue.priority),
        forbidden,
        share_with_job,
        share_without_job,
        _share_or_infinity(allocatable_share[2]),
        _share_or_infinity(allocatable_share[0]),
        _share_or_infinity(allocatable_share[1]),
        float(q.rank),
    )


def _share_or_infinity(share: float) -> float:
    return float("inf") if share == UNLIMITED else float(share)


@dataclass(slots=True)
class LeafGangs:
    """The gangs of one leaf queue as a heap. An entry is a group of equal gangs and the position of its next gang."""

    queue: QueueState
    heap: list[tuple[GangKey, int, Sequence[GangState], int]] = field(default_factory=list)
    serial: int = 0

    def push(self, group: Sequence[GangState], at: int = 0) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (gang_key(group[at]), self.serial, group, at))


class JobsOrderByQueues:
    """Pops gangs in fair order. After each pop the caller may change the session. Only the popped gang's queues are compared again, unless
    the caller calls `refresh_all` because other queues changed too.

    Gangs come in groups of equals, oldest first. After a pop the next gang of the group is a candidate, unless the caller calls
    `dismiss_equals` because the popped gang failed."""

    def __init__(self, session: Session, groups: Iterable[Sequence[GangState]]) -> None:
        self.session = session
        self.leaves: dict[str, LeafGangs] = {}
        self.heaps: dict[str, list[tuple[QueueKey, str]]] = {"": []}
        """Per inner queue ("" = above the roots): its children that have candidates."""
        self.popped_leaf: QueueState | None = None
        """The leaf popped last: its path is not in the heaps until the next call."""
        self.popped_entry: tuple[Sequence[GangState], int] | None = None
        for group in groups:
            self._leaf_gangs(group[0]).push(group)
        self.refresh_all()

    def _leaf_gangs(self, gang: GangState) -> LeafGangs:
        assert gang.queue is not None
        name = gang.queue.queue.name
        leaf_gangs = self.leaves.get(name)
        if leaf_gangs is None:
            leaf_gangs = self.leaves[name] = LeafGangs(gang.queue)
        return leaf_gangs

    def refresh_all(self) -> None:
        """Rebuild all heaps by comparing all queues again."""
        self._restore_popped()
        self.heaps = {"": []}
        level = {id(line.queue): line.queue for line in self.leaves.values() if line.heap}
        inner = {id(q): q for leaf in level.values() for q in leaf.path[1:]}
        for q in chain(level.values(), sorted(inner.values(), key=lambda q: -len(q.path))):
            candidate = self._best_candidate(q)
            if candidate is not None:
                request = self.session.total_cost(tasks_to_allocate(candidate))
                heap = self.heaps.setdefault(q.queue.parent, [])
                heapq.heappush(heap, (queue_key(self.session, q, q.allocated, request), q.queue.name))

    def _best_candidate(self, q: QueueState) -> GangState | None:
        name = q.queue.name
        while name not in self.leaves:
            heap = self.heaps.get(name)
            if not heap:
                return None
            name = heap[0][1]
        leaf_gangs = self.leaves[name]
        return leaf_gangs.heap[0][2][leaf_gangs.heap[0][3]] if leaf_gangs.heap else None

    def _push_path(self, leaf: QueueState, *, replace: bool = False) -> None:
        """Push a leaf and its ancestors into the heaps, from the bottom up."""
        previous: GangState | None = None
        request = ZERO
        for q in leaf.path:
            candidate = self._best_candidate(q)
            if candidate is None:
                continue
            if candidate is not previous:
                previous, request = candidate, self.session.total_cost(tasks_to_allocate(candidate))
            heap = self.heaps.setdefault(q.queue.parent, [])
            if replace:
                heap[:] = [e for e in heap if e[1] != q.queue.name]
                heapq.heapify(heap)
            heapq.heappush(heap, (queue_key(self.session, q, q.allocated, request), q.queue.name))

    def push_gang(self, gang: GangState) -> None:
        """Add a gang (again): an elastic one that may grow, or a victim to be placed again."""
        leaf_gangs = self._leaf_gangs(gang)
        leaf_gangs.push([gang])
        if self.popped_leaf is not leaf_gangs.queue:
            self._restore_popped()
            self._push_path(leaf_gangs.queue, replace=True)

    def dismiss_equals(self) -> None:
        """Drop the gangs equal to the one popped last, because it failed."""
        self.popped_entry = None

    def _restore_popped(self) -> None:
        leaf, self.popped_leaf = self.popped_leaf, None
        if leaf is None:
            return
        if self.popped_entry is not None:
            group, at = self.popped_entry
            self.popped_entry = None
            if at + 1 < len(group):
                self.leaves[leaf.queue.name].push(group, at + 1)
        self._push_path(leaf)

    def pop_gang(self) -> GangState | None:
        self._restore_popped()
        name = ""
        while name not in self.leaves:
            heap = self.heaps.get(name)
            if not heap:
                return None
            name = heapq.heappop(heap)[1]
        leaf_gangs = self.leaves[name]
        self.popped_leaf = leaf_gangs.queue
        _, _, group, at = heapq.heappop(leaf_gangs.heap)
        self.popped_entry = (group, at)
        return group[at]
