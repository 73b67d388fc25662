"""Reclaim: a queue below its fair share evicts pods of queues that hold more than theirs.

The reclaimer's queue must stay within its fair share. Before each eviction the victim's queue must be above its entitlement, or, if the
reclaimer's queue stays within its quota, above its own quota. These are KAI's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rowlock.scheduling.actions.solver import Solver, VictimSearch
from rowlock.scheduling.actions.victims import EvictionStep, VictimsQueue
from rowlock.scheduling.model.gang_state import GangState, QueueState, TaskState
from rowlock.scheduling.model.resources import ZERO, ResourceVector, add, is_within, subtract
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Status
from rowlock.scheduling.policy.order import tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer
from rowlock.scheduling.policy.protection import diverging_ancestors, is_evictable, is_reclaim_protected


def can_reclaim_resources(session: Session, reclaimer: GangState) -> bool:
    """KAI's `CanReclaimResources`: with the gang its queue stays within its fair share and, if not preemptible, its quota."""
    queue = reclaimer.queue
    if queue is None:
        return False
    needed = session.total_cost(tasks_to_allocate(reclaimer))
    if not is_within(add(queue.allocated, needed), queue.fair_share):
        return False
    return reclaimer.gang.preemptible or is_within(add(queue.allocated_non_preemptible, needed), queue.queue.quota)


def reclaim(session: Session, placer: Placer, reclaimer: GangState) -> bool:
    """Evict pods of other queues and pipeline the reclaimer onto their nodes. False: no fair set of victims; nothing has changed."""
    if not can_reclaim_resources(session, reclaimer):
        return False
    queues = _victim_queues(session, reclaimer)
    if not queues:
        return False
    allocated_before = {name: q.allocated for name, q in session.queues.items()}

    def accept(gang: GangState) -> bool:
        return is_evictable(gang) and not is_reclaim_protected(session, reclaimer, gang)

    def validate(tasks: Sequence[TaskState], victims: Sequence[EvictionStep]) -> bool:
        return ReclaimLedger(session, reclaimer, session.total_cost(tasks), allocated_before).is_fair(victims)

    victims = VictimsQueue(session, (g for q in queues for g in q.running_gangs.values()), accept)
    return Solver(session, placer).solve(VictimSearch(reclaimer, victims, validate))


@dataclass(frozen=True, slots=True)
class Surplus:
    """Name of a parent → its queues above their entitlement, and above their quota. Computed once per state of the session."""

    over_share: dict[str, list[QueueState]]
    over_quota: dict[str, list[QueueState]]


def find_surplus(session: Session) -> Surplus:
    """The session's `Surplus`, cached in `Session.surplus_memo` until a task moves."""
    if session.surplus_memo is None:
        surplus = Surplus({}, {})
        for q in session.queues.values():
            if _is_over(q.allocated, q.allocatable_share):
                surplus.over_share.setdefault(q.queue.parent, []).append(q)
            if _is_over(q.allocated, q.queue.quota):
                surplus.over_quota.setdefault(q.queue.parent, []).append(q)
        session.surplus_memo = surplus
    assert isinstance(session.surplus_memo, Surplus)
    return session.surplus_memo


def _victim_queues(session: Session, reclaimer: GangState) -> list[QueueState]:
    """The leaf queues that may lose pods to the reclaimer. If resources are free, pods of any other queue may be moved, too."""
    assert reclaimer.queue is not None
    surplus = find_surplus(session)
    needed = session.total_cost(tasks_to_allocate(reclaimer))
    victim_queues: list[QueueState] = []
    for ancestor in reclaimer.queue.path:
        over_queues = list(surplus.over_share.get(ancestor.queue.parent, ()))
        if surplus.over_quota.get(ancestor.queue.parent) and is_within(
            add(ancestor.allocated, needed), ancestor.queue.quota
        ):
            over_queues += surplus.over_quota[ancestor.queue.parent]
        victim_queues += [g for g in over_queues if g is not ancestor]
    if not victim_queues and (session.free_gpu < needed[2] or _was_consolidation_tried(session, reclaimer)):
        return []
    leaves = {id(leaf): leaf for g in victim_queues for leaf in _running_leaves(g)}
    if session.free_gpu > 0 or not needed[2]:
        return [q for q in session.queues.values() if q.running_gangs and q is not reclaimer.queue]
    return [q for q in session.queues.values() if id(q) in leaves]


def _was_consolidation_tried(session: Session, reclaimer: GangState) -> bool:
    """Whether consolidation has already tried to move pods for this gang, so that trying it here is useless."""
    return reclaimer.gang.preemptible and "consolidate" in session.settings.actions


def _running_leaves(q: QueueState) -> list[QueueState]:
    if not q.children:
        return [q] if q.running_gangs else []
    return [leaf for child in q.children for leaf in _running_leaves(child)]


@dataclass(slots=True)
class ReclaimLedger:
    """What queues would hold after the evictions of a search. `allocated_before`: what each held when it began, by name."""

    session: Session
    reclaimer: GangState
    needed: ResourceVector
    allocated_before: dict[str, ResourceVector]
    remaining: dict[str, ResourceVector] = field(default_factory=dict)
    involved_resources: set[int] = field(default_factory=set)
    """Indexes of the resources that the reclaimer requests or a victim loses."""

    def remaining_of(self, name: str) -> ResourceVector:
        return self.remaining.get(name, self.allocated_before[name])

    def is_fair(self, victims: Sequence[EvictionStep]) -> bool:
        """Whether every victim's queue may lose these tasks to the reclaimer. Tasks that were moved to another node are not lost."""
        self.involved_resources = {r for r in range(3) if self.needed[r] > 0}
        return all(self._subtract_step(step) for step in victims) and self._is_balanced()

    def _subtract_step(self, step: EvictionStep) -> bool:
        """Subtract one step's tasks from their queue; False if the queue would lose part of its entitlement."""
        lost_tasks = [t for t in step.tasks if t.status in (Status.RELEASING, Status.PENDING)]
        if not lost_tasks:
            return True
        assert self.reclaimer.queue is not None and step.gang.queue is not None
        reclaimer_ancestor, victim_ancestor = diverging_ancestors(self.reclaimer.queue, step.gang.queue)
        remaining = self.remaining_of(victim_ancestor.queue.name)
        below_quota = is_within(
            add(self.allocated_before[reclaimer_ancestor.queue.name], self.needed), reclaimer_ancestor.queue.quota
        )
        if not _is_over(remaining, victim_ancestor.allocatable_share) and not (
            below_quota and _is_over(remaining, victim_ancestor.queue.quota)
        ):
            return False
        amount = ZERO
        for t in lost_tasks:
            amount = add(amount, self.session.resource_cost(t.task.shape, self.session.nodes.get(t.node)))
        self.involved_resources |= {r for r in range(3) if amount[r] > 0}
        for q in step.gang.queue.path:
            self.remaining[q.queue.name] = subtract(self.remaining_of(q.queue.name), amount)
        return True

    def _is_balanced(self) -> bool:
        """At every ancestor the reclaimer's side must stay less saturated than the siblings it took from."""
        assert self.reclaimer.queue is not None
        for q in self.reclaimer.queue.path:
            after = add(self.remaining_of(q.queue.name), self.needed)
            parent = self.session.queues.get(q.queue.parent)
            siblings = parent.children if parent else [s for s in self.session.queues.values() if len(s.path) == 1]
            reduced = [s for s in siblings if s is not q and s.queue.name in self.remaining]
            if any(self._is_more_saturated(q, after, s, r) for s in reduced for r in self.involved_resources):
                return False
            if not self.reclaimer.gang.preemptible and not is_within(q.allocated_non_preemptible, q.queue.quota):
                return False
        return True

    def _is_more_saturated(self, q: QueueState, after: ResourceVector, sibling: QueueState, r: int) -> bool:
        saturation, sibling_saturation = (
            _saturation(after[r], q.fair_share[r]),
            _saturation(self.remaining[sibling.queue.name][r], sibling.fair_share[r]),
        )
        return saturation > 1 and sibling.fair_share[r] > 0 and saturation >= sibling_saturation


def _is_over(amount: ResourceVector, bound: ResourceVector) -> bool:
    return not is_within(amount, bound)


def _saturation(amount: float, fair_share: float) -> float:
    if fair_share > 0:
        return amount / fair_share
    return float("inf") if amount > 0 else 0.0
