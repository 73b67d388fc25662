"""Whom nobody may evict now: the non-preemptible, those already leaving, and the young (min-runtime)."""

from __future__ import annotations

from rowlock.scheduling.world import GangState, QueueState, World


def evictable(gang: GangState) -> bool:
    """Preemptible, and it has something to lose: pods that run or were planned earlier in this cycle."""
    return gang.gang.preemptible and gang.queue is not None and gang.active > 0


def _min_runtime(path: tuple[QueueState, ...], field: str) -> float:
    """The nearest setting upward from the first queue of the path."""
    for q in path:
        value: float | None = getattr(q.queue, field)
        if value is not None:
            return value
    return 0.0


def remaining_runtime(world: World, gang: GangState, seconds: float) -> float:
    """How long the gang is still protected by a min-runtime of that many seconds."""
    return max(0.0, gang.gang.started + seconds - world.now) if gang.gang.started else 0.0


def _young(world: World, gang: GangState, seconds: float) -> bool:
    """Protected, unless it has surplus pods to give."""
    return remaining_runtime(world, gang, seconds) > 0 and gang.elasticity() < 2


def diverge(a: QueueState, b: QueueState) -> tuple[QueueState, QueueState]:
    """The ancestors of both just below their lowest common one."""
    up, down = list(reversed(a.path)), list(reversed(b.path))
    for x, y in zip(up, down, strict=False):
        if x is not y:
            return x, y
    return a, b


def reclaim_seconds(asker: GangState, victim: GangState) -> float:
    """The victim's protection is looked up one step below the lowest common ancestor, on its side, and upward."""
    assert asker.queue is not None and victim.queue is not None
    return _min_runtime(diverge(asker.queue, victim.queue)[1].path, "reclaim_min_runtime")


def reclaim_protected(world: World, asker: GangState, victim: GangState) -> bool:
    return _young(world, victim, reclaim_seconds(asker, victim))


def first_unprotected(world: World, asker: GangState, act: str) -> float | None:
    """Seconds until the first gang that the act may evict loses its protection; None = nobody is protected."""
    assert asker.queue is not None
    waits: list[float] = []
    for gang in world.active_gangs():
        same = gang.queue is asker.queue
        if same != (act == "preempt") or not evictable(gang) or (same and gang.gang.priority >= asker.gang.priority):
            continue
        seconds = preempt_seconds(gang) if same else reclaim_seconds(asker, gang)
        if seconds and (left := remaining_runtime(world, gang, seconds)) > 0:
            waits.append(left)
    return min(waits, default=None)


def preempt_seconds(victim: GangState) -> float:
    assert victim.queue is not None
    return _min_runtime(victim.queue.path, "preempt_min_runtime")


def preempt_protected(world: World, victim: GangState) -> bool:
    return _young(world, victim, preempt_seconds(victim))
