"""The order of victims: the reverse of the allocation order, as lazily computed steps.

A step is one surplus pod of an elastic gang, or a whole gang. Queues furthest above their share come first; within a queue the lowest
priority, then surplus pods, then the youngest. The sequence depends only on the session's initial state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rowlock.scheduling.model.gang_state import ACTIVE_STATUSES, GangState, QueueState, TaskState
from rowlock.scheduling.model.resources import ZERO, ResourceVector, add, subtract
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.policy.order import QueueKey, queue_key


class VictimsQueue:
    """Lazily computed eviction steps of the gangs that `accept` allows. `max_gangs`: maximum of different gangs; -1 = no limit."""

    def __init__(
        self,
        session: Session,
        gangs: Iterable[GangState],
        accept: Callable[[GangState], bool],
        *,
        max_gangs: int = -1,
    ) -> None:
        self.session = session
        self.max_gangs = max_gangs
        self.steps: list[EvictionStep] = []
        self.taken_resources: dict[str, ResourceVector] = {}
        self.remaining_pods: dict[str, dict[str, int]] = {}
        self.heaps: dict[str, list[tuple[tuple[float, ...], str, GangState]]] = {}
        for gang in gangs:
            if accept(gang):
                self._push_gang(gang)

    def step(self, index: int) -> EvictionStep | None:
        """The step with this index; None if there are no more victims."""
        while index >= len(self.steps):
            next_step = self._next_step()
            if next_step is None:
                return None
            self.steps.append(next_step)
        return self.steps[index]

    def _push_gang(self, gang: GangState) -> None:
        assert gang.queue is not None
        remaining = self.remaining_pods.get(gang.gang.key)
        surplus = any(
            (remaining[s.name] if remaining else s.active_count) + s.succeeded_count > s.minimum
            for s in gang.pod_sets.values()
        )
        below = any(
            (remaining[s.name] if remaining else s.active_count) + s.succeeded_count < s.minimum
            for s in gang.pod_sets.values()
        )
        elastic = 0 if below else 2 if surplus else 1
        key = (float(gang.gang.priority), -float(elastic), -gang.gang.created)
        heapq.heappush(self.heaps.setdefault(gang.queue.queue.name, []), (key, _reversed_key(gang), gang))

    def _next_step(self) -> EvictionStep | None:
        best: QueueState | None = None
        roots = [q for q in self.session.queues.values() if len(q.path) == 1]
        level, candidates = roots, self._candidates()
        while level:
            choices = [q for q in level if q.queue.name in candidates]
            if not choices:
                return None
            best = max(choices, key=lambda q: self._victim_key(q, candidates[q.queue.name]))
            level = best.children
        if best is None:
            return None
        gang = self.heaps[best.queue.name][0][2]
        if 0 <= self.max_gangs <= len(self.remaining_pods) and gang.gang.key not in self.remaining_pods:
            return None
        heapq.heappop(self.heaps[best.queue.name])
        return self._take_step(gang)

    def _candidates(self) -> dict[str, GangState]:
        """Name of a queue → the next victim in its subtree, for all queues that have one."""
        candidates: dict[str, GangState] = {}
        for name, heap in self.heaps.items():
            if heap:
                leaf = self.session.queues[name]
                for q in leaf.path:
                    candidates.setdefault(q.queue.name, heap[0][2])
        return candidates

    def _victim_key(self, q: QueueState, gang: GangState) -> QueueKey:
        remaining = subtract(q.allocated, self.taken_resources.get(q.queue.name, ZERO))
        removed = subtract(remaining, self._resource_cost(self._choose_tasks(gang)))
        is_over_fair_share = all(f < c for f, c in zip(q.fair_share, remaining, strict=True))
        key = queue_key(self.session, q, removed, ZERO)
        return (float(is_over_fair_share), *key[1:])

    def _resource_cost(self, tasks: list[TaskState]) -> ResourceVector:
        total = ZERO
        for t in tasks:
            total = add(total, self.session.resource_cost(t.task.shape, self.session.nodes.get(t.node)))
        return total

    def _choose_tasks(self, gang: GangState) -> list[TaskState]:
        remaining = self.remaining_pods.get(gang.gang.key) or {s.name: s.active_count for s in gang.pod_sets.values()}
        surplus = [
            s
            for s in gang.pod_sets.values()
            if remaining[s.name] > 0 and remaining[s.name] + s.succeeded_count > s.minimum
        ]
        active = {
            s.name: [t for t in s.tasks if t.status in ACTIVE_STATUSES][: remaining[s.name]]
            for s in gang.pod_sets.values()
        }
        if surplus:
            fullest_set = max(
                surplus, key=lambda s: (remaining[s.name] / s.minimum if s.minimum else remaining[s.name], s.name)
            )
            return [active[fullest_set.name][-1]]
        return [t for tasks in active.values() for t in tasks]

    def _take_step(self, gang: GangState) -> EvictionStep:
        tasks = self._choose_tasks(gang)
        remaining = self.remaining_pods.setdefault(
            gang.gang.key, {s.name: s.active_count for s in gang.pod_sets.values()}
        )
        for t in tasks:
            remaining[t.pod_set.name] -= 1
        cost = self._resource_cost(tasks)
        assert gang.queue is not None
        for q in gang.queue.path:
            self.taken_resources[q.queue.name] = add(self.taken_resources.get(q.queue.name, ZERO), cost)
        is_whole_gang = not any(remaining.values())
        if not is_whole_gang:
            self._push_gang(gang)
        return EvictionStep(gang, tuple(tasks), is_whole_gang, tuple(dict.fromkeys(t.node for t in tasks)))


@dataclass(frozen=True, slots=True)
class EvictionStep:
    """Tasks of one gang that are evicted together; `is_whole_gang`: no task of the gang remains."""

    gang: GangState
    tasks: tuple[TaskState, ...]
    is_whole_gang: bool
    nodes: tuple[str, ...] = ()
    """Names of the tasks' nodes, without duplicates."""


def _reversed_key(gang: GangState) -> str:
    """A text that sorts in the reverse order of the gang's key."""
    return "".join(chr(0x10FFFF - ord(c)) for c in gang.gang.key)
