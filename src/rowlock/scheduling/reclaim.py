"""Reclaim: a queue below its fair share takes back from queues that hold more than theirs.

The asker's queue must stay within its fair share; every victim's queue must have been above what it is entitled to
before the victim left, or the asker be below its quota and the victim's queue above its own. KAI's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        return fair(world, asker, world.need(tasks), losers, before)

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


def fair(world: World, asker: GangState, need: Vector, losers: Sequence[Step], before: dict[str, Vector]) -> bool:
    """Are these losses fair? Tasks that were placed elsewhere lose nothing."""
    assert asker.queue is not None
    remaining: dict[str, Vector] = {}
    involved = {r for r in range(3) if need[r] > 0}
    for step in losers:
        lost = [t for t in step.tasks if t.status in (Status.RELEASING, Status.PENDING)]
        if not lost:
            continue
        victim = step.gang.queue
        assert victim is not None
        taker, giver = diverge(asker.queue, victim)
        left = remaining.get(giver.queue.name, before[giver.queue.name])
        if not _over(left, giver.share) and not (
            within(plus(before[taker.queue.name], need), taker.queue.quota) and _over(left, giver.queue.quota)
        ):
            return False
        amount = ZERO
        for t in lost:
            amount = plus(amount, world.vector(t.task.shape, world.nodes.get(t.node)))
        involved |= {r for r in range(3) if amount[r] > 0}
        for q in victim.path:
            name = q.queue.name
            remaining[name] = minus(remaining.get(name, before[name]), amount)
    return _within_boundaries(world, asker, need, remaining, before, involved)


def _over(amount: Vector, bound: Vector) -> bool:
    return not within(amount, bound)


def _within_boundaries(
    world: World,
    asker: GangState,
    need: Vector,
    remaining: dict[str, Vector],
    before: dict[str, Vector],
    involved: set[int],
) -> bool:
    """At every ancestor the asker's side must stay less saturated than the siblings it took from."""
    assert asker.queue is not None
    for q in asker.queue.path:
        after = plus(remaining.get(q.queue.name, before[q.queue.name]), need)
        parent = world.queues.get(q.queue.parent)
        siblings = parent.children if parent else [s for s in world.queues.values() if len(s.path) == 1]
        for s in siblings:
            if s is q or s.queue.name not in remaining:
                continue
            for r in involved:
                mine, theirs = _ratio(after[r], q.fair[r]), _ratio(remaining[s.queue.name][r], s.fair[r])
                if mine > 1 and s.fair[r] > 0 and mine >= theirs:
                    return False
        if not asker.gang.preemptible and not within(q.fixed, q.queue.quota):
            return False
    return True


def _ratio(amount: int, fair_share: int) -> float:
    if fair_share > 0:
        return amount / fair_share
    return float("inf") if amount > 0 else 0.0
