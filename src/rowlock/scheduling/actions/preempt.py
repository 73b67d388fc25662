"""Preempt: within one queue, a gang evicts gangs of strictly lower priority."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.scheduling.actions.allocate import Reason, check_queue_capacity
from rowlock.scheduling.actions.solver import Solver, VictimSearch
from rowlock.scheduling.actions.victims import EvictionStep, VictimsQueue
from rowlock.scheduling.model.gang_state import GangState, TaskState
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.policy.order import tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer
from rowlock.scheduling.policy.protection import is_evictable, is_preempt_protected


def is_worth_preempting(session: Session, preemptor: GangState) -> bool:
    """Whether a gang of lower priority runs in its queue."""
    queue = preemptor.queue
    return queue is not None and any(priority < preemptor.gang.priority for priority in queue.running_priorities)


def preempt(session: Session, placer: Placer, preemptor: GangState) -> bool:
    """Evict gangs of lower priority in the preemptor's queue until it fits. False: it does not fit; nothing has changed."""
    queue = preemptor.queue
    if queue is None:
        return False
    lower_priority = [g for g in queue.running_gangs.values() if g.gang.priority < preemptor.gang.priority]
    failure = check_queue_capacity(preemptor, session.total_cost(tasks_to_allocate(preemptor)))
    if not lower_priority or (failure is not None and failure.reason is Reason.OVER_QUOTA):
        return False

    def accept(gang: GangState) -> bool:
        # What a gang reclaims from other queues in this cycle stays with it: a larger gang of its queue may not be entitled to it.
        return is_evictable(gang) and not gang.has_victims and not is_preempt_protected(session, gang)

    def validate(tasks: Sequence[TaskState], victims: Sequence[EvictionStep]) -> bool:
        return True

    return Solver(session, placer).solve(
        VictimSearch(preemptor, VictimsQueue(session, lower_priority, accept), validate)
    )
