"""`plan(snapshot) -> Plan`: which pods are bound where, which are evicted for which gang, and why gangs wait.

One cycle: fair shares; then allocate, consolidate, reclaim, preempt and the eviction of stale gangs, least disruptive first, on one session
with an undo log. At the end the remaining moves become decisions. No clock, no I/O, no randomness: the same snapshot always gives the same
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf

from rowlock.scheduling.actions import reserve
from rowlock.scheduling.actions.allocate import Failure, Reason, allocate_gang, check_queue_capacity
from rowlock.scheduling.actions.consolidate import consolidate, is_worth_consolidating
from rowlock.scheduling.actions.pending_gangs import PendingGangs
from rowlock.scheduling.actions.preempt import is_worth_preempting, preempt
from rowlock.scheduling.actions.reclaim import can_reclaim_resources, reclaim
from rowlock.scheduling.actions.stale_gangs import (
    evict_lost_gangs,
    evict_stale_gangs,
    seconds_until_lost,
    seconds_until_stale,
)
from rowlock.scheduling.model.gang_state import GangState, TaskState
from rowlock.scheduling.model.session import Session, open_session
from rowlock.scheduling.model.snapshot import PipelinedGang, Snapshot, Status
from rowlock.scheduling.plan import Hold, Plan, PlanDecision, PlannedBind, PlannedEviction
from rowlock.scheduling.policy import fairshare
from rowlock.scheduling.policy.order import JobsOrderByQueues, tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer
from rowlock.scheduling.policy.protection import seconds_until_unprotected

VictimAction = Callable[[Session, Placer, GangState], bool]
ActionFilter = Callable[[Session, GangState], bool]
VICTIM_ACTIONS: dict[str, tuple[ActionFilter, VictimAction]] = {
    "consolidate": (is_worth_consolidating, consolidate),
    "reclaim": (can_reclaim_resources, reclaim),
    "preempt": (is_worth_preempting, preempt),
}
"""The actions that evict, each with a cheap test whether to try a pending gang at all."""


def plan(snapshot: Snapshot) -> Plan:
    """Plan one cycle of a snapshot."""
    return Planner(open_session(snapshot)).run_cycle()


@dataclass(slots=True)
class Planner:
    """A session, and data that is kept between cycles.

    `run_cycle` restores the session, unless `keep_plan`: then the caller must call `reset`."""

    session: Session
    placer: Placer = field(init=False)
    pending_gangs: PendingGangs = field(init=False)
    failures: dict[str, Failure] = field(default_factory=dict)
    placed_gangs: list[GangState] = field(default_factory=list)
    timers: list[float] = field(default_factory=list)
    """Delays in seconds after which the plan may change without any change of the cluster."""
    has_min_runtimes: bool = False
    """Some queue has a min-runtime."""
    eviction_causes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key of a gang that loses pods in this plan → (action, key of the preemptor or "")."""

    def __post_init__(self) -> None:
        self.placer = Placer(self.session)
        self.pending_gangs = PendingGangs(self.session)
        self.pending_gangs.refill()

    def run_cycle(self, *, keep_plan: bool = False) -> Plan:
        """Plan once. With `keep_plan` the plan stays in the session until `reset`, and holds are left to `holds()`."""
        session = self.session
        self.failures.clear()
        self.eviction_causes.clear()
        self.timers.clear()
        queues = [q.queue for q in session.queues.values()]
        self.has_min_runtimes = any(q.preempt_min_runtime or q.reclaim_min_runtime for q in queues)
        checkpoint = session.checkpoint()
        fairshare.set_fair_shares(session)
        old_reservations = session.node_reservations
        reserve.update_node_reservations(session, self.placer, self.pending_gangs)
        for action in session.settings.actions:
            if action == "allocate":
                self._run_allocate()
            elif action == "reserve":
                self._run_reserve()
            elif action == "stale":
                self._run_stale()
            else:
                self._run_victim_action(action)
        self._allocate_free_pipelined(checkpoint)
        decisions, pipelined_nodes = self._collect_decisions(checkpoint)
        if not keep_plan:
            decisions += self.holds()
            self.reset()
        pipelined_gangs = tuple(self._pipelined_gang(key, nodes) for key, nodes in pipelined_nodes.items())
        node_reservations = session.node_reservations
        if not keep_plan:
            session.set_node_reservations(old_reservations)
        return Plan(tuple(decisions), pipelined_gangs, self._next_cycle_in(), node_reservations)

    def reset(self) -> None:
        """Undo the cycle: the session is as before it."""
        self.session.rollback(0)
        self.session.trim_touched()
        for state in self.placed_gangs:
            state.has_victims = False
            if state.queue is not None and not state.active_count:
                state.queue.remove_running(state.gang.key)
        self.placed_gangs.clear()

    # ------------------------------------------------------------ actions

    def _run_allocate(self) -> None:
        allocated = self._allocate_nominated()
        order = JobsOrderByQueues(
            self.session, [g for g in self.pending_gangs.ready_groups() if self._may_be_allocated(g[0])]
        )
        while (state := order.pop_gang()) is not None:
            if state.gang.key in allocated:
                continue
            failure = allocate_gang(self.session, self.placer, state)
            if failure is not None:
                self.failures[state.gang.key] = failure
                order.dismiss_equals()
                continue
            self._add_placed(state)
            if state.pending_count:
                order.push_gang(state)

    def _may_be_allocated(self, head: GangState) -> bool:
        """Whether the head of a group of equal gangs fits now. Resources only shrink while allocating, so if not, the group is skipped."""
        tasks = tasks_to_allocate(head)
        if not tasks:
            return head.pending_count > 0
        failure = check_queue_capacity(head, self.session.total_cost(tasks))
        if failure is None:
            shape = tasks[0].task.shape
            if not shape.held_back and self.placer.node_ranking(shape).best_node() is not None:
                return True
            reason = Reason.UNSUPPORTED if shape.held_back else Reason.DOES_NOT_FIT
            failure = Failure(reason, head.gang.queue, task=tasks[0].task.name, shape=shape, pods_needed=len(tasks))
        self.failures[head.gang.key] = failure
        return False

    def _add_placed(self, state: GangState) -> None:
        """Add a gang with planned pods to its queue's running gangs: a later action of this cycle may evict them."""
        assert state.queue is not None
        state.queue.add_running(state)
        self.placed_gangs.append(state)

    def _allocate_nominated(self) -> set[str]:
        """Allocate gangs that precede all queues: half-bound ones (after a crash), then pipelined ones. Returns their keys."""
        candidates = {
            key: g
            for key, g in self.session.below_minimum_gangs.items()
            if g.pending_count and key in self.pending_gangs.positions
        }
        for key in self.session.reservations:
            if key in self.pending_gangs.positions:
                candidates.setdefault(key, self.session.gangs[key])
        allocated: set[str] = set()
        order = sorted(
            candidates.values(),
            key=lambda g: (g.active_count == 0, self._nominated_since(g), g.gang.created, g.gang.key),
        )
        for g in order:
            reservation = self.session.reservations.get(g.gang.key)
            nodes = dict(reservation.nodes) if reservation else None
            if allocate_gang(self.session, self.placer, g, nominated_nodes=nodes) is None:
                self._add_placed(g)
                allocated.add(g.gang.key)
        return allocated

    def _nominated_since(self, g: GangState) -> float:
        reservation = self.session.reservations.get(g.gang.key)
        return reservation.since if reservation else 0.0

    def _run_victim_action(self, name: str) -> None:
        is_worth_trying, run_action = VICTIM_ACTIONS[name]
        self.session.forget_memos()
        order = JobsOrderByQueues(
            self.session, [g for g in self.pending_gangs.ready_groups() if is_worth_trying(self.session, g[0])]
        )
        while (state := order.pop_gang()) is not None:
            if not state.pending_count or is_pipelined(state):
                continue
            checkpoint = self.session.checkpoint()
            delay = state.gang.created + state.gang.delay - self.session.now if state.gang.delay else 0.0
            if delay > 0:
                self.timers.append(delay)
            if delay > 0 or not run_action(self.session, self.placer, state):
                self._note_protection_end(state, name)
                order.dismiss_equals()
                continue
            self.session.forget_memos()
            self._add_placed(state)
            state.has_victims |= self._record_eviction_causes(name, state, checkpoint)
            order.refresh_all()

    def _run_reserve(self) -> None:
        """Evict backfilled pods from reserved nodes if the gang with the reservation can start."""
        for reservation in self.session.node_reservations:
            checkpoint = self.session.checkpoint()
            state, retry_in = reserve.evict_backfilled(self.session, self.placer, reservation)
            if retry_in is not None:
                self.timers.append(retry_in)
            if state is None:
                continue
            self.session.forget_memos()
            self._add_placed(state)
            self._record_eviction_causes("reserve", state, checkpoint)

    def _record_eviction_causes(self, action: str, preemptor: GangState, checkpoint: int) -> bool:
        """Record action and preemptor for gangs that lost pods since `checkpoint`; False if there are none. A cause replaces an earlier one
        of consolidation, which only moved pods. Victims of a gang that is no longer pipelined become this preemptor's."""
        victims = dict.fromkeys(
            task.gang for task, *_ in self.session.undo_log[checkpoint:] if task.gang is not preemptor
        )
        for victim in victims:
            key = victim.gang.key
            if self.eviction_causes.get(key, ("consolidate",))[0] == "consolidate":
                self.eviction_causes[key] = (action, preemptor.gang.key)
            if not is_pipelined(victim):
                heirs = [gang for gang, (_, by) in self.eviction_causes.items() if by == key]
                self.eviction_causes.update(
                    (gang, (self.eviction_causes[gang][0], preemptor.gang.key)) for gang in heirs
                )
        return bool(victims)

    def _run_stale(self) -> None:
        for state in evict_lost_gangs(self.session):
            self.eviction_causes[state.gang.key] = ("lost", "")
        for state in evict_stale_gangs(self.session):
            self.eviction_causes.setdefault(state.gang.key, ("stale", ""))

    def _note_protection_end(self, state: GangState, action: str) -> None:
        """Add a timer for the next end of a min-runtime that protects victims from this preemptor."""
        if not self.has_min_runtimes or action == "consolidate":
            return
        wait = seconds_until_unprotected(self.session, state, action)
        if wait is not None:
            self.timers.append(wait)
            self.failures[state.gang.key] = Failure(Reason.PROTECTED, state.gang.queue, seconds=wait)

    def _allocate_free_pipelined(self, checkpoint: int) -> None:
        """Allocate pipelined gangs that need no eviction. Their resources had been planned for other gangs in this cycle; if they were only
        nominated, those could take them back in the next cycle, and so on for ever."""
        session = self.session
        moved = dict.fromkeys(entry[0] for entry in session.undo_log[checkpoint:])
        pipelined = [t for t in moved if t.status is Status.PIPELINED]
        evicted = [t for t in moved if t.status is Status.RELEASING and t.task.status is not Status.RELEASING]
        preemptors = {self.eviction_causes.get(t.gang.gang.key, ("", ""))[1] for t in evicted}
        for state in dict.fromkeys(t.gang for t in pipelined):
            gang_tasks = [t for t in pipelined if t.gang is state]
            if state.gang.key in preemptors or any(t.origin is not None for t in gang_tasks):
                continue
            gang_checkpoint = session.checkpoint()
            for t in gang_tasks:
                session.move_task(t, Status.PENDING)
            if allocate_gang(session, self.placer, state, tasks=gang_tasks) is not None or is_pipelined(state):
                session.rollback(gang_checkpoint)

    # ------------------------------------------------------------ results

    def _collect_decisions(self, checkpoint: int) -> tuple[list[PlanDecision], dict[str, list[tuple[str, str]]]]:
        moved: dict[TaskState, None] = {}
        for entry in self.session.undo_log[checkpoint:]:
            moved.setdefault(entry[0])
        decisions: list[PlanDecision] = []
        pipelined: dict[str, list[tuple[str, str]]] = {}
        for t in moved:
            gang = t.gang.gang
            if t.status is Status.ALLOCATED:
                decisions.append(PlannedBind(t.task.namespace, t.task.name, t.task.uid, t.node, t.devices, gang.key))
            elif (t.status is Status.RELEASING and t.task.status is not Status.RELEASING) or t.origin is not None:
                action, preemptor = self.eviction_causes.get(gang.key, ("", ""))
                target = t.node if t.status is Status.PIPELINED else ""
                decisions.append(
                    PlannedEviction(t.task.namespace, t.task.name, t.task.uid, gang.key, action, preemptor, target)
                )
            if t.status is Status.PIPELINED:
                pipelined.setdefault(gang.key, []).append((t.task.name, t.node))
        return decisions, pipelined

    def _pipelined_gang(self, key: str, nodes: list[tuple[str, str]]) -> PipelinedGang:
        old = self.session.reservations.get(key)
        return PipelinedGang(key, tuple(nodes), old.since if old else self.session.now)

    def head_holds(self) -> Iterator[Hold]:
        """The holds of gangs that were tried (one per group of equal gangs), and of gangs that cannot be tried."""
        for group in self.pending_gangs.ready_groups():
            yield from islice(self._group_holds(group), 1)
        for key, text in self.pending_gangs.not_ready.items():
            yield Hold(key, Failure(Reason.NOT_READY, task=text))
        for key, g in self.pending_gangs.without_queue.items():
            yield Hold(key, Failure(Reason.QUEUE_MISSING, g.gang.queue))

    def holds(self) -> Iterator[Hold]:
        """All holds, the first of each group of equal gangs first. Valid only between `run_cycle(keep_plan=True)` and `reset`."""
        rest = (islice(self._group_holds(group), 1, None) for group in self.pending_gangs.ready_groups())
        return chain(self.head_holds(), chain.from_iterable(rest))

    def _group_holds(self, group: list[GangState]) -> Iterator[Hold]:
        failure: Failure | None = None
        ahead = 0
        for g in group:
            failure = self.failures.get(g.gang.key, failure)
            if not g.pending_count or is_pipelined(g):
                if g.active_count and is_pipelined(g):
                    yield Hold(g.gang.key, Failure(Reason.RELEASING, g.gang.queue))
            elif failure is not None:
                yield Hold(g.gang.key, failure, ahead)
                ahead += 1

    def _next_cycle_in(self) -> float | None:
        delays = [
            w
            for g in self.session.below_minimum_gangs.values()
            if (w := seconds_until_stale(self.session, g)) is not None and w > 0
        ]
        delays += [
            w for g in self.session.gangs_on_lost_nodes.values() if 0 < (w := seconds_until_lost(self.session, g)) < inf
        ]
        return min(delays + self.timers, default=None)


def is_pipelined(state: GangState) -> bool:
    """Whether some of the gang's pods are pipelined, which means that they wait for terminating pods."""
    return any(s.active_count > s.allocated_count for s in state.pod_sets.values())
