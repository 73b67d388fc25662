"""The pending gangs, in groups of equal ones, updated as gangs change.

Pending gangs with the same signature request the same under the same rules. The oldest is tried first, and if it fails the others are
skipped: ten thousand equal jobs cost a cycle as much as one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from rowlock.scheduling.actions.allocate import not_ready_message
from rowlock.scheduling.model.gang_state import GangState
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Shape
from rowlock.scheduling.policy.order import GangKey, gang_key, tasks_to_allocate


@dataclass(frozen=True, slots=True)
class GangSignature:
    """All properties of a gang that decide whether an attempt can succeed."""

    queue: str
    priority: int
    preemptible: bool
    delay: float
    lasts: float
    topology_levels: tuple[str, str]
    sets: tuple[tuple[int, int, int], ...]
    shapes: tuple[Shape, ...]


@dataclass(slots=True)
class EqualGangs:
    """Gangs of one signature in the order of their `keys`, which are sorted."""

    keys: list[GangKey] = field(default_factory=list)
    gangs: list[GangState] = field(default_factory=list)


def gang_signature(state: GangState) -> GangSignature:
    """What the gang's next attempt depends on; gangs of equal signatures succeed or fail alike."""
    return GangSignature(
        queue=state.gang.queue,
        priority=state.gang.priority,
        preemptible=state.gang.preemptible,
        delay=state.gang.delay,
        lasts=state.gang.lasts,
        topology_levels=(state.gang.required, state.gang.preferred),
        sets=tuple((s.minimum, s.active_count, s.pending_count) for s in state.pod_sets.values()),
        shapes=tuple(t.task.shape for t in tasks_to_allocate(state)),
    )


class PendingGangs:
    """The gangs of a session that have pods to place."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.groups: dict[GangSignature, EqualGangs] = {}
        self.positions: dict[str, tuple[GangSignature, GangKey]] = {}
        """Key of a gang → its group and its sort key there."""
        self.not_ready: dict[str, str] = {}
        """Key of a gang that lacks pods of its own → the message."""
        self.without_queue: dict[str, GangState] = {}
        """Gangs whose queue does not exist or may not hold jobs."""

    def refill(self) -> None:
        """Rebuild from all gangs of the session."""
        for name in list(self.positions) + list(self.not_ready) + list(self.without_queue):
            self.drop_gang(name)
        for state in self.session.gangs.values():
            self.put_gang(state)

    def put_gang(self, state: GangState) -> None:
        key = state.gang.key
        self.drop_gang(key)
        if state.gang.foreign or not state.has_pending_tasks():
            return
        if state.queue is None:
            self.without_queue[key] = state
            return
        sentence = not_ready_message(state)
        if sentence:
            self.not_ready[key] = sentence
            return
        if not state.pending_count:
            return
        group_key = gang_signature(state)
        order_key = gang_key(state)
        self.positions[key] = (group_key, order_key)
        group = self.groups.setdefault(group_key, EqualGangs())
        at = bisect.bisect(group.keys, order_key)
        group.keys.insert(at, order_key)
        group.gangs.insert(at, state)

    def drop_gang(self, key: str) -> None:
        self.not_ready.pop(key, None)
        self.without_queue.pop(key, None)
        position = self.positions.pop(key, None)
        if position is None:
            return
        group_key, order_key = position
        group = self.groups[group_key]
        at = bisect.bisect_left(group.keys, order_key)
        del group.keys[at], group.gangs[at]
        if not group.keys:
            del self.groups[group_key]

    def ready_groups(self) -> Iterator[list[GangState]]:
        for group in self.groups.values():
            yield group.gangs
