"""Which gangs no action may evict now: non-preemptible ones, those already leaving, and those within their min-runtime.

The min-runtime rules are those of KAI's minruntime plugin.
"""

from __future__ import annotations

from rowlock.scheduling.model.gang_state import GangState, QueueState
from rowlock.scheduling.model.session import Session


def is_evictable(gang: GangState) -> bool:
    """Whether the gang is preemptible and has pods that run or were planned earlier in this cycle."""
    return gang.gang.preemptible and gang.queue is not None and gang.active_count > 0


def _nearest_min_runtime(path: tuple[QueueState, ...], field: str) -> float:
    """The first value of `field` along the path, in seconds; 0 if no queue has one."""
    for q in path:
        value: float | None = getattr(q.queue, field)
        if value is not None:
            return value
    return 0.0


def remaining_runtime(session: Session, gang: GangState, seconds: float) -> float:
    """Remaining seconds for which a min-runtime of `seconds` protects the gang."""
    return max(0.0, gang.gang.started + seconds - session.now) if gang.gang.started else 0.0


def _is_runtime_protected(session: Session, gang: GangState, seconds: float) -> bool:
    """Whether the min-runtime protects the gang; never if it has pods above its minimum."""
    return remaining_runtime(session, gang, seconds) > 0 and gang.elasticity() < 2


def diverging_ancestors(a: QueueState, b: QueueState) -> tuple[QueueState, QueueState]:
    """The ancestors of `a` and `b` (or themselves) just below their lowest common ancestor."""
    up, down = list(reversed(a.path)), list(reversed(b.path))
    for x, y in zip(up, down, strict=False):
        if x is not y:
            return x, y
    return a, b


def resolve_reclaim_min_runtime(reclaimer: GangState, victim: GangState) -> float:
    """The victim's min-runtime in seconds: looked up from its ancestor just below the lowest common one upward."""
    assert reclaimer.queue is not None and victim.queue is not None
    return _nearest_min_runtime(diverging_ancestors(reclaimer.queue, victim.queue)[1].path, "reclaim_min_runtime")


def is_reclaim_protected(session: Session, reclaimer: GangState, victim: GangState) -> bool:
    """True while the victim is within the min-runtime that protects it from this reclaimer."""
    return _is_runtime_protected(session, victim, resolve_reclaim_min_runtime(reclaimer, victim))


def seconds_until_unprotected(session: Session, preemptor: GangState, action: str) -> float | None:
    """Seconds until the first gang that the action could evict loses its protection; None = none is protected."""
    assert preemptor.queue is not None
    delays: list[float] = []
    for gang in session.active_gangs():
        in_same_queue = gang.queue is preemptor.queue
        if (
            in_same_queue != (action == "preempt")
            or not is_evictable(gang)
            or (in_same_queue and gang.gang.priority >= preemptor.gang.priority)
        ):
            continue
        seconds = resolve_preempt_min_runtime(gang) if in_same_queue else resolve_reclaim_min_runtime(preemptor, gang)
        if seconds and (remaining := remaining_runtime(session, gang, seconds)) > 0:
            delays.append(remaining)
    return min(delays, default=None)


def resolve_preempt_min_runtime(victim: GangState) -> float:
    """The min-runtime in seconds of the victim's queue, or of its nearest ancestor that has one."""
    assert victim.queue is not None
    return _nearest_min_runtime(victim.queue.path, "preempt_min_runtime")


def is_preempt_protected(session: Session, victim: GangState) -> bool:
    """True while the victim is within the min-runtime that protects it from its own queue's gangs."""
    return _is_runtime_protected(session, victim, resolve_preempt_min_runtime(victim))
