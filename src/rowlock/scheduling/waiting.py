"""Who waits: groups of equal gangs per queue, kept up to date as gangs come and go.

Two pending gangs with the same signature ask for the same under the same rules; the older is tried first, and when it
fails the others need not be tried. Ten thousand equal jobs cost a cycle as much as one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from rowlock.scheduling.allocate import unready
from rowlock.scheduling.order import GangKey, gang_key, wanted
from rowlock.scheduling.snapshot import Shape
from rowlock.scheduling.world import GangState, World


@dataclass(frozen=True, slots=True)
class Signature:
    """What decides whether an attempt can succeed, apart from the moment."""

    queue: str
    priority: int
    preemptible: bool
    delay: float
    lasts: float
    places: tuple[str, str]
    sets: tuple[tuple[int, int, int], ...]
    shapes: tuple[Shape, ...]


@dataclass(slots=True)
class Group:
    """Equal gangs in order, with their keys."""

    keys: list[GangKey] = field(default_factory=list)
    gangs: list[GangState] = field(default_factory=list)


def signature(state: GangState) -> Signature:
    return Signature(
        queue=state.gang.queue,
        priority=state.gang.priority,
        preemptible=state.gang.preemptible,
        delay=state.gang.delay,
        lasts=state.gang.lasts,
        places=(state.gang.required, state.gang.preferred),
        sets=tuple((s.minimum, s.active, s.pending) for s in state.sets.values()),
        shapes=tuple(t.task.shape for t in wanted(state)),
    )


class Waiting:
    """The gangs of a world that have something to ask for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.groups: dict[Signature, Group] = {}
        self.where: dict[str, tuple[Signature, GangKey]] = {}
        """Gang → its group and its place in it."""
        self.unready: dict[str, str] = {}
        """Gangs that wait for their own pods, with the sentence."""
        self.homeless: dict[str, GangState] = {}
        """Gangs whose queue does not exist or may not hold jobs."""

    def fill(self) -> None:
        """Sort in every gang of the world."""
        for name in list(self.where) + list(self.unready) + list(self.homeless):
            self.drop(name)
        for state in self.world.gangs.values():
            self.put(state)

    def put(self, state: GangState) -> None:
        key = state.gang.key
        self.drop(key)
        if state.gang.foreign or not state.tasks_pending():
            return
        if state.queue is None:
            self.homeless[key] = state
            return
        sentence = unready(state)
        if sentence:
            self.unready[key] = sentence
            return
        if not state.pending:
            return
        sign = signature(state)
        place = gang_key(state)
        self.where[key] = (sign, place)
        group = self.groups.setdefault(sign, Group())
        at = bisect.bisect(group.keys, place)
        group.keys.insert(at, place)
        group.gangs.insert(at, state)

    def drop(self, key: str) -> None:
        self.unready.pop(key, None)
        self.homeless.pop(key, None)
        found = self.where.pop(key, None)
        if found is None:
            return
        sign, place = found
        group = self.groups[sign]
        at = bisect.bisect_left(group.keys, place)
        del group.keys[at], group.gangs[at]
        if not group.keys:
            del self.groups[sign]

    def ready(self) -> Iterator[list[GangState]]:
        for group in self.groups.values():
            yield group.gangs
