"""`Scheduler`: the controller around the planner. One constant key; a decision is one cycle.

Changes are noted, the session follows the View, and a cycle runs only when something changed or a timer is due. All binds and evictions of
a cycle are written; explanations only when they change, and a limited number per cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from rowlock import api
from rowlock.api import Change, View
from rowlock.kinds import POD, QUEUE, Kind
from rowlock.objects import Key, is_condition_true
from rowlock.scheduling.actions.allocate import Reason
from rowlock.scheduling.actions.stale_gangs import is_below_minimum
from rowlock.scheduling.explain import queue_status, writes
from rowlock.scheduling.explain.explanations import Explainer, Explanation
from rowlock.scheduling.model.gang_state import GangState
from rowlock.scheduling.model.scheduler_identity import EMBEDDED, SchedulerIdentity
from rowlock.scheduling.model.snapshot import SchedulerSettings, Snapshot, Status
from rowlock.scheduling.plan import Hold, Plan
from rowlock.scheduling.policy.usage import SAVE_INTERVAL, QueueUsage
from rowlock.scheduling.snapshot_tracker import SnapshotTracker, stands_still

SCHEDULER_KEY = Key("", "scheduler")
MAX_HOLDS_PER_CYCLE = 512
"""Maximum of holds that one cycle examines; the first of each group come first, and later cycles examine the rest (`HoldSweep`)."""
SWEEP_INTERVAL = 0.25
"""Seconds until the next cycle examines the remaining holds."""
MAX_STATUS_WRITES_PER_CYCLE = 64
"""Maximum of status writes per cycle; the rest follows in the next cycle."""
SAME_REASON_INTERVAL = 10.0
"""Seconds after which an explanation is written again if its numbers changed, but not its reason."""
LARGE_GANG_PODS = 32
"""In larger gangs the pods' conditions have only the reason: numbers change often, and each change would be a write per pod."""
SETTLING_GANG_PODS = 128
SETTLE_PER_POD = 0.0001
"""Seconds until the next cycle for each pod of the largest gang that was read for this one, from `SETTLING_GANG_PODS` pods: while such a
gang starts, its pods change one after the other, and each cycle reads all of them."""
QUEUE_STATUS_INTERVAL = 2.0
"""Seconds between two writes of queue statuses."""
PIPELINED_QUIET_SECONDS = 3.0
"""Seconds before a pipelined gang gets an explanation: most start earlier."""
PENDING_QUIET_SECONDS = 1.0
"""Seconds before a waiting gang gets an explanation: most start at once."""
NOT_READY_QUIET_SECONDS = 2.0
"""The same for a gang that lacks pods of its own. Creation times are whole seconds, so this means at least one second."""


@dataclass(slots=True)
class LastExplanation:
    """The last explanation written for a gang; `reason` is that of the attempt, before it was refined."""

    reason: Reason
    message: str
    written_at: float
    is_outdated: bool = False
    """The cluster has changed since; the explanation is updated once `SAME_REASON_INTERVAL` is over, even without another change."""


@dataclass(slots=True)
class HoldSweep:
    """Progress of the sweep over holds: of thousands, one cycle examines a part, and the next continues after it."""

    position: int = 0
    """Number of holds that earlier cycles of this sweep have examined; 0 = a new sweep begins."""
    changed: bool = False
    """The cluster has changed since the previous sweep, so explanations may be outdated."""
    repeats: bool = False
    """The cluster has changed during this sweep, so another sweep must follow."""

    def note_change(self) -> None:
        self.repeats = self.repeats or self.position > 0
        self.changed = True

    def advance(self, count: int, *, is_complete: bool) -> bool:
        """Note that this cycle has examined `count` holds, all remaining ones if `is_complete`. True: another cycle must continue."""
        if not is_complete:
            self.position += count
            return True
        self.position = 0
        self.changed, self.repeats = self.repeats, False
        return self.changed


@dataclass
class Scheduler:
    """Implements `api.Controller`."""

    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    identity: SchedulerIdentity = EMBEDDED
    stopwatch: Callable[[], float] = stands_still
    """Ends slices of work, so that the event loop can run other tasks (`SnapshotTracker`)."""
    name: str = "scheduler"
    kinds: tuple[Kind, ...] = field(init=False)
    tracker: SnapshotTracker = field(init=False)
    last_explanations: dict[str, LastExplanation] = field(default_factory=dict)
    sweep: HoldSweep = field(default_factory=HoldSweep)
    queue_status_dirty: bool = False
    """Queue statuses may have changed since their last write at `queue_status_written_at`."""
    queue_status_written_at: float = 0.0
    next_cycle_at: float | None = None
    """When the plan may change without any change of the cluster (seconds since the epoch); None = never."""
    usage: QueueUsage = field(init=False)
    usage_saved_at: float = 0.0
    """When the queues' usage was saved last."""
    cycles: int = 0
    """Plans made so far."""
    has_unplanned_changes: bool = False
    """`snapshot` or `keys` applied changes that no cycle has planned with yet."""

    def __post_init__(self) -> None:
        self.tracker = SnapshotTracker(self.settings, self.identity, self.stopwatch)
        self.kinds = self.tracker.kinds
        self.usage = QueueUsage(self.settings.half_life)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        self.tracker.note_change(change)
        self.has_unplanned_changes = self.tracker.absorb(view) or self.has_unplanned_changes
        return (SCHEDULER_KEY,)

    def decide(self, view: View, key: Key, now: float) -> api.Decision:
        usage_writes, usage_due_in = self._measure_usage(view, now)
        changed = self.tracker.sync(view, now) or self.has_unplanned_changes
        self.has_unplanned_changes = changed
        if self.tracker.is_behind:
            return api.Decision(tuple(usage_writes), 0.0)  # the rest follows in another turn
        settle = self.tracker.largest_read * SETTLE_PER_POD if self.tracker.largest_read >= SETTLING_GANG_PODS else 0.0
        for name, q in self.tracker.planner.session.queues.items():
            q.usage = self.usage.shares.get(name, q.queue.usage)
        self.queue_status_dirty = self.queue_status_dirty or changed
        if not changed and (self.next_cycle_at is None or now < self.next_cycle_at):
            wait = None if self.next_cycle_at is None else self.next_cycle_at - now
            return api.Decision(tuple(usage_writes), wait, settle=settle)
        planner = self.tracker.planner
        try:
            plan = planner.run_cycle(keep_plan=True)
            self.cycles += 1
            planner.session.reservations = {r.gang: r for r in plan.reservations}
            planner.session.set_node_reservations(plan.node_reservations)
            explanation_writes, explain_in = self._explanation_writes(view, now, changed)
        finally:
            planner.reset()
        plan_writes = list(self._plan_writes(view, plan, now))
        queue_writes, queue_writes_in = self._queue_status_writes(view, plan, now)
        self.has_unplanned_changes = False  # only now: a cycle that fails is repeated
        delays = [w for w in (plan.next_cycle_in, explain_in, queue_writes_in, usage_due_in) if w is not None]
        next_cycle_in = min(delays, default=None)
        self.next_cycle_at = None if next_cycle_in is None else now + next_cycle_in
        return api.Decision(
            (*plan_writes, *explanation_writes, *queue_writes, *usage_writes), next_cycle_in, settle=settle
        )

    def _measure_usage(self, view: View, now: float) -> tuple[list[api.Write], float | None]:
        """With time-based fair share: update the queues' usage. Returns (writes that save it, seconds until the next save)."""
        if self.settings.half_life <= 0:
            return [], None
        session = self.tracker.planner.session
        if self.usage.measured_at is None:
            self.usage.restore(view.all(QUEUE), now)
        self.usage.forget_deleted(view.all(QUEUE))
        self.usage.advance(now, {name: q.allocated for name, q in session.queues.items()}, session.total)
        wait = self.usage_saved_at + SAVE_INTERVAL - now
        if 0 < wait <= SAVE_INTERVAL:
            return [], wait
        self.usage_saved_at = now
        return list(queue_status.usage_writes(self.usage, session, view)), SAVE_INTERVAL

    def snapshot(self, view: View, now: float) -> Snapshot:
        """The snapshot that the next cycle would plan from, for `rowlock scheduler snapshot` and `what_if.py`."""
        self.has_unplanned_changes = self.tracker.sync(view, now) or self.has_unplanned_changes
        while self.tracker.is_behind:
            self.has_unplanned_changes = self.tracker.sync(view, now) or self.has_unplanned_changes
        session = self.tracker.planner.session
        return Snapshot(
            now=now,
            nodes=tuple(s.node for s in session.ordered_nodes),
            queues=tuple(replace(q.queue, usage=q.usage) for q in session.queues.values()),
            gangs=tuple(g.gang for g in session.gangs.values()),
            reservations=tuple(session.reservations.values()),
            settings=self.settings,
            earmarks=session.node_reservations,
            lost=tuple(sorted(session.lost_nodes.items())),
        )

    # ------------------------------------------------------------ writes

    def _plan_writes(self, view: View, plan: Plan, now: float) -> Iterator[api.Write]:
        session, source = self.tracker.planner.session, self.identity.event_source
        yield from writes.eviction_writes(session, view, plan.evictions, now, source)
        yield from writes.bind_writes(session, plan.binds, self.identity)
        for key in dict.fromkeys(b.gang for b in plan.binds):
            state = session.gangs[key]
            has_waited = bool(self.last_explanations.pop(key, None)) or bool(state.gang.verdict)
            if state.gang.bare:
                continue
            if has_waited or not state.gang.started or writes.is_marked_evicted(view, state.gang):
                yield writes.running_write(state, now)
        for state in list(self._gangs_that_stopped_waiting()):
            self.last_explanations.pop(state.gang.key, None)
            yield writes.running_write(state, now)
        for state in list(session.below_minimum_gangs.values()):
            gang = state.gang
            if not gang.bare and is_below_minimum(state) != bool(gang.stale):
                yield writes.stale_write(gang, None if gang.stale else now)

    def _gangs_that_stopped_waiting(self) -> Iterator[GangState]:
        """Elastic gangs whose PodGroup says that they wait, but whose pending pods are gone because the job was scaled down."""
        gangs = self.tracker.planner.session.gangs
        for key in gangs if self.cycles == 1 else self.last_explanations:
            state = gangs.get(key)
            if state is not None and state.gang.verdict and state.active_count and not state.has_pending_tasks():
                yield state

    def _queue_status_writes(self, view: View, plan: Plan, now: float) -> tuple[list[api.Write], float | None]:
        """(writes of queue statuses, at most once per `QUEUE_STATUS_INTERVAL`; seconds until the next ones are due, or None)."""
        if not self.queue_status_dirty:
            return [], None
        wait = self.queue_status_written_at + QUEUE_STATUS_INTERVAL - now
        if 0 < wait <= QUEUE_STATUS_INTERVAL:
            return [], wait
        if plan.binds or plan.evictions:
            return [], QUEUE_STATUS_INTERVAL  # these change the statuses again; they are written afterwards
        status_patches = list(
            queue_status.status_writes(self.tracker.planner.session, view, MAX_STATUS_WRITES_PER_CYCLE)
        )
        self.queue_status_dirty, self.queue_status_written_at = len(status_patches) >= MAX_STATUS_WRITES_PER_CYCLE, now
        return status_patches, QUEUE_STATUS_INTERVAL if self.queue_status_dirty else None

    def _explanation_writes(self, view: View, now: float, changed: bool) -> tuple[list[api.Write], float | None]:
        """(writes of explanations for waiting gangs; seconds until the next ones are due, or None)."""
        explanations: list[api.Write] = []
        next_in: float | None = None
        explainer = Explainer(self.tracker.planner.session)
        for gone in self.last_explanations.keys() - self.tracker.planner.session.gangs.keys():
            del self.last_explanations[gone]
        if changed:
            self.sweep.note_change()
        begin, count, resume_in = self.sweep.position, 0, SWEEP_INTERVAL
        for hold in islice(self.tracker.planner.holds(), begin, begin + MAX_HOLDS_PER_CYCLE):
            if len(explanations) >= MAX_STATUS_WRITES_PER_CYCLE:
                resume_in = 0.05
                break
            count += 1
            wait = self._seconds_until_explained(hold, now, self.sweep.changed)
            if wait is not None:
                if wait > 0:
                    next_in = wait if next_in is None else min(next_in, wait)
                continue
            explanation = explainer.explain(hold)
            if explanation is None:
                continue
            state = self.tracker.planner.session.gangs[hold.gang]
            last = self.last_explanations.get(hold.gang)
            is_new = last is None or last.reason is not hold.failure.reason
            self.last_explanations[hold.gang] = LastExplanation(hold.failure.reason, explanation.message, now)
            explanations += self._gang_explanation_writes(view, state, explanation, now, is_new_reason=is_new)
        is_complete = count < MAX_HOLDS_PER_CYCLE and resume_in == SWEEP_INTERVAL
        if self.sweep.advance(count, is_complete=is_complete):
            next_in = resume_in if next_in is None else min(next_in, resume_in)
        return explanations, next_in

    def _seconds_until_explained(self, hold: Hold, now: float, changed: bool) -> float | None:
        """None = explain now; else seconds until the hold must be examined again (0 = when something changes)."""
        state = self.tracker.planner.session.gangs.get(hold.gang)
        if state is None:
            return 0.0
        quiet_seconds = NOT_READY_QUIET_SECONDS if hold.failure.reason is Reason.NOT_READY else PENDING_QUIET_SECONDS
        if not state.gang.bare and (wait := state.gang.created + quiet_seconds - now) > 0:
            return wait
        pipelined = self.tracker.planner.session.reservations.get(hold.gang)
        if (
            hold.failure.reason is Reason.RELEASING
            and pipelined
            and (wait := pipelined.since + PIPELINED_QUIET_SECONDS - now) > 0
        ):
            return wait
        last = self.last_explanations.get(hold.gang)
        if last is None:
            return None
        if last.reason == hold.failure.reason and (wait := last.written_at + SAME_REASON_INTERVAL - now) > 0:
            last.is_outdated = last.is_outdated or changed
            return wait if last.is_outdated else 0.0
        return None

    def _gang_explanation_writes(
        self, view: View, state: GangState, explanation: Explanation, now: float, *, is_new_reason: bool
    ) -> Iterator[api.Write]:
        """The writes of one explanation. Pods of a gang that is not large get an Event with the first explanation and when the reason
        changes, but not when only numbers change."""
        gang = state.gang
        is_unchanged = gang.verdict == explanation.message
        message = explanation.kube_message if gang.bare else explanation.message
        if is_large := len(gang.tasks) > LARGE_GANG_PODS:
            message = f"{explanation.reason}: the gang waits; PodGroup {gang.name} says why."
        if not gang.bare and not is_unchanged:
            yield from writes.pending_writes(state, explanation, now, self.identity.event_source)
        if explanation.reason is Reason.NOT_READY:
            return  # its pods are still being created: only the PodGroup says so
        for t in state.tasks:
            if t.task.status != "Pending" or t.status is Status.ALLOCATED or t.task.verdict == message:
                continue  # some pods of an elastic gang start in this cycle while others wait
            pod = view.get(POD, t.task.namespace, t.task.name)
            if pod is not None and not is_condition_true(pod, "PodScheduled"):
                yield writes.unschedulable_write(pod, message, now)
                if gang.bare or (not is_large and (is_new_reason or not t.task.verdict)):
                    yield writes.failed_scheduling_event(t.task, message, self.identity.event_source)
