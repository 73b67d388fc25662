"""Reclaim: a queue below its fair share takes back from queues that hold more than theirs.

The asker's queue must stay within its fair share; every victim's queue must have been above what it is entitled to
before the victim left, or the asker be below its quota and the victim's queue above its own. KAI's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rowlock.scheduling.amounts import ZERO, Vector, minus, plus, within
from rowlock.scheduling.order import wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.protection import diverge, evictable, reclaim_protected
from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.solver import Search, Solver
from rowlock.scheduling.victims import Step, Victims
from rowlock.scheduling.world import GangState, QueueState, TaskState, World


def entitled(world: World, asker: GangState) -> bool:
    """May its queue hold this much more by right? (fair share for all, quota for the non-preemptible)"""
    queue = asker.queue
    if queue is None:
        return False
    need = world.need(wanted(asker))
    if not within(plus(queue.counted, need), queue.fair):
        return False
    return asker.gang.preemptible or within(plus(queue.fixed, need), queue.queue.quota)


def reclaim(world: World, placer: Placer, asker: GangState) -> bool:
    """Evict from other queues and promise the room to the asker; False changes nothing."""
    if not entitled(world, asker):
        return False
    queues = _givers(world, asker)
    if not queues:
        return False
    before = {name: q.counted for name, q in world.queues.items()}

    def accept(gang: GangState) -> bool:
        return evictable(gang) and not reclaim_protected(world, asker, gang)

    def validate(tasks: Sequence[TaskState], losers: Sequence[Step]) -> bool:
        return Ledger(world, asker, world.need(tasks), before).fair(losers)

    victims = Victims(world, (g for q in queues for g in q.running.values()), accept)
    return Solver(world, placer).solve(Search(asker, victims, validate))


@dataclass(frozen=True, slots=True)
class Surplus:
    """Queues with more than they are entitled to, by their parent's name; worked out once per state of the world."""

    over_share: dict[str, list[QueueState]]
    over_quota: dict[str, list[QueueState]]


def surplus(world: World) -> Surplus:
    if world.surplus is None:
        found = Surplus({}, {})
        for q in world.queues.values():
            if _over(q.counted, q.share):
                found.over_share.setdefault(q.queue.parent, []).append(q)
            if _over(q.counted, q.queue.quota):
                found.over_quota.setdefault(q.queue.parent, []).append(q)
        world.surplus = found
    assert isinstance(world.surplus, Surplus)
    return world.surplus


def _givers(world: World, asker: GangState) -> list[QueueState]:
    """The leaves that may lose something to the asker. Where room is free the others may be moved besides."""
    assert asker.queue is not None
    have = surplus(world)
    need = world.need(wanted(asker))
    givers: list[QueueState] = []
    for taker in asker.queue.path:
        rich = list(have.over_share.get(taker.queue.parent, ()))
        if have.over_quota.get(taker.queue.parent) and within(plus(taker.counted, need), taker.queue.quota):
            rich += have.over_quota[taker.queue.parent]
        givers += [g for g in rich if g is not taker]
    if not givers and (world.free_gpu < need[2] or _consolidated(world, asker)):
        return []
    leaves = {id(leaf): leaf for g in givers for leaf in _leaves(g)}
    if world.free_gpu > 0 or not need[2]:
        return [q for q in world.queues.values() if q.running and q is not asker.queue]
    return [q for q in world.queues.values() if id(q) in leaves]


def _consolidated(world: World, asker: GangState) -> bool:
    """Where nobody has to lose anything, moving pods was consolidation's chance already."""
    return asker.gang.preemptible and "consolidate" in world.settings.actions


def _leaves(q: QueueState) -> list[QueueState]:
    if not q.children:
        return [q] if q.running else []
    return [leaf for child in q.children for leaf in _leaves(child)]


@dataclass(slots=True)
class Ledger:
    """What queues would be left with. `before` is what they held when the search began."""

    world: World
    asker: GangState
    need: Vector
    before: dict[str, Vector]
    remaining: dict[str, Vector] = field(default_factory=dict)
    involved: set[int] = field(default_factory=set)
    """Resources that the asker wants or a victim loses."""

    def held(self, name: str) -> Vector:
        return self.remaining.get(name, self.before[name])

    def fair(self, losers: Sequence[Step]) -> bool:
        """Are these losses fair? Tasks that were placed elsewhere lose nothing."""
        self.involved = {r for r in range(3) if self.need[r] > 0}
        return all(self._take(step) for step in losers) and self._balanced()

    def _take(self, step: Step) -> bool:
        """One chunk of a victim: may it go, after those before it?"""
        lost = [t for t in step.tasks if t.status in (Status.RELEASING, Status.PENDING)]
        if not lost:
            return True
        assert self.asker.queue is not None and step.gang.queue is not None
        taker, giver = diverge(self.asker.queue, step.gang.queue)
        left = self.held(giver.queue.name)
        below_quota = within(plus(self.before[taker.queue.name], self.need), taker.queue.quota)
        if not _over(left, giver.share) and not (below_quota and _over(left, giver.queue.quota)):
            return False
        amount = ZERO
        for t in lost:
            amount = plus(amount, self.world.vector(t.task.shape, self.world.nodes.get(t.node)))
        self.involved |= {r for r in range(3) if amount[r] > 0}
        for q in step.gang.queue.path:
            self.remaining[q.queue.name] = minus(self.held(q.queue.name), amount)
        return True

    def _balanced(self) -> bool:
        """At every ancestor the asker's side must stay less saturated than the siblings it took from."""
        assert self.asker.queue is not None
        for q in self.asker.queue.path:
            after = plus(self.held(q.queue.name), self.need)
            parent = self.world.queues.get(q.queue.parent)
            siblings = parent.children if parent else [s for s in self.world.queues.values() if len(s.path) == 1]
            touched = [s for s in siblings if s is not q and s.queue.name in self.remaining]
            if any(self._more_saturated(q, after, s, r) for s in touched for r in self.involved):
                return False
            if not self.asker.gang.preemptible and not within(q.fixed, q.queue.quota):
                return False
        return True

    def _more_saturated(self, q: QueueState, after: Vector, s: QueueState, r: int) -> bool:
        mine, theirs = _ratio(after[r], q.fair[r]), _ratio(self.remaining[s.queue.name][r], s.fair[r])
        return mine > 1 and s.fair[r] > 0 and mine >= theirs


def _over(amount: Vector, bound: Vector) -> bool:
    return not within(amount, bound)


def _ratio(amount: int, fair_share: int) -> float:
    if fair_share > 0:
        return amount / fair_share
    return float("inf") if amount > 0 else 0.0
