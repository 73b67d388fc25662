"""Who is considered next: a tournament of queues, level by level, and inside a leaf the gangs in line.

A gang that a crash left half bound goes before all others; then gangs that hold a promise; then the queues compete
with their best candidate: below fair share, below quota, priority, smallest dominant share, age. Inside a leaf, equal
gangs (same shapes, priority, elasticity) stand in one line, so that one failure dismisses the whole line.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rowlock.scheduling.amounts import UNLIMITED, ZERO, Vector
from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.world import GangState, QueueState, TaskState, World

QueueKey = tuple[float, ...]
GangKey = tuple[int, int, float, str]


def gang_key(state: GangState) -> GangKey:
    gang = state.gang
    return (-gang.priority, state.elasticity(), gang.created, gang.key)


def wanted(state: GangState) -> list[TaskState]:
    """The tasks the next attempt places: what every set lacks of its minimum; nothing lacking, one more pod."""
    chosen: list[TaskState] = []
    for s in state.sets.values():
        if s.missing > 0:
            pending = [t for t in s.tasks if t.status is Status.PENDING]
            chosen += pending[: s.missing]
    if chosen or any(s.missing > 0 for s in state.sets.values()):
        return chosen
    growing = [s for s in state.sets.values() if s.pending]
    if not growing:
        return []
    least = min(growing, key=lambda s: (s.active / s.minimum if s.minimum else s.active, s.name))
    return [next(t for t in least.tasks if t.status is Status.PENDING)]


def queue_key(world: World, q: QueueState, counted: Vector, job: Vector) -> QueueKey:
    """Small = first. `counted` is what the queue holds, `job` what its candidate asks."""
    fair, share, quota, total = q.fair, q.share, q.queue.quota, world.total
    over, starved, forbidden = 1.0, 0.0, 0.0
    with_job = without = 0.0
    for r in (0, 1, 2):
        have, asked, bound = counted[r], job[r], share[r]
        after = have + asked
        if fair[r] >= have:
            over = 0.0
        if after > quota[r] != UNLIMITED:
            starved = 1.0
        if bound == 0 and asked > 0:
            forbidden = 1.0
        unit = (total[r] if bound == UNLIMITED else bound) or max(1, total[r]) / 1000.0
        with_job = max(with_job, after / unit)
        without = max(without, have / unit)
    return (
        over,
        starved,
        float(-q.queue.priority),
        forbidden,
        with_job,
        without,
        _weakness(share[2]),
        _weakness(share[0]),
        _weakness(share[1]),
        float(q.rank),
    )


def _weakness(share: int) -> float:
    return float("inf") if share == UNLIMITED else float(share)


@dataclass(slots=True)
class Line:
    """The gangs of one leaf in order. An entry is the head of a group of equals and its position in the group."""

    queue: QueueState
    heap: list[tuple[GangKey, int, Sequence[GangState], int]] = field(default_factory=list)
    serial: int = 0

    def push(self, group: Sequence[GangState], at: int = 0) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (gang_key(group[at]), self.serial, group, at))


class Tournament:
    """Pops gangs in fair order. After each pop the caller may change the world; only the popped path is compared
    again, unless it says `refresh()` because other queues changed too.

    Gangs come in groups of equals (oldest first): after a pop the next of the group stands in line, unless the caller
    says `dismiss()`: what failed for one fails for all."""

    def __init__(self, world: World, groups: Iterable[Sequence[GangState]]) -> None:
        self.world = world
        self.lines: dict[str, Line] = {}
        self.heaps: dict[str, list[tuple[QueueKey, str]]] = {"": []}
        """Per inner queue ("" = above the roots): its children that have candidates."""
        self.open: QueueState | None = None
        """The leaf popped last: its path is out of the heaps until the next call."""
        self.following: tuple[Sequence[GangState], int] | None = None
        for group in groups:
            self._line(group[0]).push(group)
        self.refresh()

    def _line(self, gang: GangState) -> Line:
        assert gang.queue is not None
        name = gang.queue.queue.name
        line = self.lines.get(name)
        if line is None:
            line = self.lines[name] = Line(gang.queue)
        return line

    def refresh(self) -> None:
        """Compare everything again."""
        self._close()
        self.heaps = {"": []}
        level = {id(line.queue): line.queue for line in self.lines.values() if line.heap}
        inner = {id(q): q for leaf in level.values() for q in leaf.path[1:]}
        for q in chain(level.values(), sorted(inner.values(), key=lambda q: -len(q.path))):
            candidate = self._candidate(q)
            if candidate is not None:
                job = self.world.need(wanted(candidate))
                heap = self.heaps.setdefault(q.queue.parent, [])
                heapq.heappush(heap, (queue_key(self.world, q, q.counted, job), q.queue.name))

    def _candidate(self, q: QueueState) -> GangState | None:
        name = q.queue.name
        while name not in self.lines:
            heap = self.heaps.get(name)
            if not heap:
                return None
            name = heap[0][1]
        line = self.lines[name]
        return line.heap[0][2][line.heap[0][3]] if line.heap else None

    def _enter(self, leaf: QueueState, *, fresh: bool = False) -> None:
        """Put the path of a leaf (back) into the heaps, from the bottom up."""
        before: GangState | None = None
        job = ZERO
        for q in leaf.path:
            candidate = self._candidate(q)
            if candidate is None:
                continue
            if candidate is not before:
                before, job = candidate, self.world.need(wanted(candidate))
            heap = self.heaps.setdefault(q.queue.parent, [])
            if fresh:
                heap[:] = [e for e in heap if e[1] != q.queue.name]
                heapq.heapify(heap)
            heapq.heappush(heap, (queue_key(self.world, q, q.counted, job), q.queue.name))

    def push(self, gang: GangState) -> None:
        """A gang (again): an elastic one that may grow, a victim that wants back in."""
        line = self._line(gang)
        line.push([gang])
        if self.open is not line.queue:
            self._close()
            self._enter(line.queue, fresh=True)

    def dismiss(self) -> None:
        """The gang popped last failed; forget its equals too."""
        self.following = None

    def _close(self) -> None:
        leaf, self.open = self.open, None
        if leaf is None:
            return
        if self.following is not None:
            group, at = self.following
            self.following = None
            if at + 1 < len(group):
                self.lines[leaf.queue.name].push(group, at + 1)
        self._enter(leaf)

    def pop(self) -> GangState | None:
        self._close()
        name = ""
        while name not in self.lines:
            heap = self.heaps.get(name)
            if not heap:
                return None
            name = heapq.heappop(heap)[1]
        line = self.lines[name]
        self.open = line.queue
        _, _, group, at = heapq.heappop(line.heap)
        self.following = (group, at)
        return group[at]
