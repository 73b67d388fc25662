"""Whom to evict first: everything in reverse order, as lazily computed steps.

A step is one surplus pod of an elastic gang, or a whole gang. Queues that hold most beyond their share give first; in
a queue the lowest priority, the surplus, the youngest. The sequence depends only on the world as it was.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rowlock.scheduling.amounts import ZERO, Vector, minus, plus
from rowlock.scheduling.order import QueueKey, queue_key
from rowlock.scheduling.world import ACTIVE, GangState, QueueState, TaskState, World


class Victims:
    """Steps of eviction in the reverse order of everything: one surplus pod, or a whole gang. Lazily extended."""

    def __init__(
        self,
        world: World,
        gangs: Iterable[GangState],
        accept: Callable[[GangState], bool],
        *,
        most_gangs: int = -1,
    ) -> None:
        self.world = world
        self.most_gangs = most_gangs
        self.steps: list[Step] = []
        self.taken: dict[str, Vector] = {}
        self.left: dict[str, dict[str, int]] = {}
        self.lines: dict[str, list[tuple[tuple[float, ...], str, GangState]]] = {}
        for gang in gangs:
            if accept(gang):
                self._push(gang)

    def step(self, index: int) -> Step | None:
        """The index-th step, None when nobody is left."""
        while index >= len(self.steps):
            following = self._next()
            if following is None:
                return None
            self.steps.append(following)
        return self.steps[index]

    def _push(self, gang: GangState) -> None:
        assert gang.queue is not None
        left = self.left.get(gang.gang.key)
        surplus = any((left[s.name] if left else s.active) + s.done > s.minimum for s in gang.sets.values())
        below = any((left[s.name] if left else s.active) + s.done < s.minimum for s in gang.sets.values())
        elastic = 0 if below else 2 if surplus else 1
        key = (float(gang.gang.priority), -float(elastic), -gang.gang.created)
        heapq.heappush(self.lines.setdefault(gang.queue.queue.name, []), (key, _reverse(gang), gang))

    def _next(self) -> Step | None:
        best: QueueState | None = None
        roots = [q for q in self.world.queues.values() if len(q.path) == 1]
        level, alive = roots, self._alive()
        while level:
            choices = [q for q in level if q.queue.name in alive]
            if not choices:
                return None
            best = max(choices, key=lambda q: self._key(q, alive[q.queue.name]))
            level = best.children
        if best is None:
            return None
        gang = self.lines[best.queue.name][0][2]
        if 0 <= self.most_gangs <= len(self.left) and gang.gang.key not in self.left:
            return None
        heapq.heappop(self.lines[best.queue.name])
        return self._take(gang)

    def _alive(self) -> dict[str, GangState]:
        """Every queue with a victim in its subtree, with the one it would give next."""
        found: dict[str, GangState] = {}
        for name, heap in self.lines.items():
            if heap:
                leaf = self.world.queues[name]
                for q in leaf.path:
                    found.setdefault(q.queue.name, heap[0][2])
        return found

    def _key(self, q: QueueState, gang: GangState) -> QueueKey:
        remaining = minus(q.counted, self.taken.get(q.queue.name, ZERO))
        removed = minus(remaining, self._cost(self._choose(gang)))
        over = all(f < c for f, c in zip(q.fair, remaining, strict=True))
        key = queue_key(self.world, q, removed, ZERO)
        return (float(over), *key[1:])

    def _cost(self, tasks: list[TaskState]) -> Vector:
        total = ZERO
        for t in tasks:
            total = plus(total, self.world.vector(t.task.shape, self.world.nodes.get(t.node)))
        return total

    def _choose(self, gang: GangState) -> list[TaskState]:
        left = self.left.get(gang.gang.key) or {s.name: s.active for s in gang.sets.values()}
        surplus = [s for s in gang.sets.values() if left[s.name] > 0 and left[s.name] + s.done > s.minimum]
        active = {s.name: [t for t in s.tasks if t.status in ACTIVE][: left[s.name]] for s in gang.sets.values()}
        if surplus:
            most = max(surplus, key=lambda s: (left[s.name] / s.minimum if s.minimum else left[s.name], s.name))
            return [active[most.name][-1]]
        return [t for tasks in active.values() for t in tasks]

    def _take(self, gang: GangState) -> Step:
        tasks = self._choose(gang)
        left = self.left.setdefault(gang.gang.key, {s.name: s.active for s in gang.sets.values()})
        for t in tasks:
            left[t.set.name] -= 1
        cost = self._cost(tasks)
        assert gang.queue is not None
        for q in gang.queue.path:
            self.taken[q.queue.name] = plus(self.taken.get(q.queue.name, ZERO), cost)
        whole = not any(left.values())
        if not whole:
            self._push(gang)
        return Step(gang, tuple(tasks), whole, tuple(dict.fromkeys(t.node for t in tasks)))


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks of one gang that leave together; `whole`: nothing of the gang stays."""

    gang: GangState
    tasks: tuple[TaskState, ...]
    whole: bool
    nodes: tuple[str, ...] = ()
    """Where they were, each once."""


def _reverse(gang: GangState) -> str:
    """A text that sorts in the opposite order of the gang's uid."""
    return "".join(chr(0x10FFFF - ord(c)) for c in gang.gang.key)
