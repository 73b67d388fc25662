"""Consolidation: move running pods closer together so that a waiting gang fits.

Every evicted pod gets a new node in the same plan, so it loses only time.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.scheduling.actions.allocate import check_queue_capacity
from rowlock.scheduling.actions.solver import Solver, VictimSearch
from rowlock.scheduling.actions.victims import EvictionStep, VictimsQueue
from rowlock.scheduling.model.gang_state import GangState, TaskState
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Status
from rowlock.scheduling.policy.order import tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer
from rowlock.scheduling.policy.protection import is_evictable


def is_worth_consolidating(session: Session, preemptor: GangState) -> bool:
    """Whether the gang may consolidate and would fit if all free resources of the cluster were on one node."""
    if session.settings.max_consolidated == 0 or not preemptor.gang.preemptible or preemptor.queue is None:
        return False
    cpu, _, gpus = session.total_cost(tasks_to_allocate(preemptor))
    return session.free_gpu >= gpus if gpus else sum(s.idle_cpu + s.releasing_cpu for s in session.ordered_nodes) >= cpu


def is_bound_in_this_cycle(gang: GangState) -> bool:
    """Whether this plan binds a pod of the gang. Moving its other pods would leave that one alone, below the gang's minimum."""
    return any(t.status is Status.ALLOCATED and t.task.status is Status.PENDING for t in gang.tasks)


def consolidate(session: Session, placer: Placer, preemptor: GangState) -> bool:
    """Move running pods so that the pending gang fits; every evicted pod gets a new node. False: nothing has changed."""
    if (
        not is_worth_consolidating(session, preemptor)
        or check_queue_capacity(preemptor, session.total_cost(tasks_to_allocate(preemptor))) is not None
    ):
        return False

    def accept(gang: GangState) -> bool:
        return is_evictable(gang) and gang is not preemptor and not is_bound_in_this_cycle(gang)

    def validate(tasks: Sequence[TaskState], victims: Sequence[EvictionStep]) -> bool:
        return all(t.status not in (Status.RELEASING, Status.PENDING) for s in victims for t in s.tasks)

    victims = None if preemptor.active_count else session.action_memos.get("consolidate")
    if not isinstance(victims, VictimsQueue):
        victims = VictimsQueue(session, session.active_gangs(), accept, max_gangs=session.settings.max_consolidated)
        if not preemptor.active_count:
            session.action_memos["consolidate"] = victims
    return Solver(session, placer).solve(VictimSearch(preemptor, victims, validate))
