"""`Scheduler`: the controller around the planner. One constant key; a decision is one cycle.

Changes are noted, the world follows the View, and a cycle runs only when something changed or a timer is due. Writes
are bounded: binds and evictions always, words about waiting only when they change, a few per cycle and gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from rowlock import api
from rowlock.api import Change, View
from rowlock.kinds import POD, QUEUE, Kind
from rowlock.objects import Key, is_true
from rowlock.scheduling import queues, writes
from rowlock.scheduling.allocate import Reason
from rowlock.scheduling.explain import Explainer, Explanation
from rowlock.scheduling.following import KINDS, Following
from rowlock.scheduling.plan import Hold, Plan
from rowlock.scheduling.snapshot import Settings, Snapshot
from rowlock.scheduling.stale import below_minimum
from rowlock.scheduling.usage import SAVED_EVERY, Usage
from rowlock.scheduling.world import GangState

THE_KEY = Key("", "scheduler")
LOOKS_PER_CYCLE = 512
"""How many of those who wait one cycle looks at; their heads come first."""
WORDS_PER_CYCLE = 64
"""How many writes about waiting one cycle may make; the rest follows in the next."""
SAME_REASON_AFTER = 10.0
"""A sentence whose numbers changed, but not its reason, is written again after this many seconds."""
CROWD = 32
"""Pods of larger gangs are told only the reason: numbers change, and each change would be a write per pod."""
FIGURES_EVERY = 2.0
"""Seconds between two writings of queue statuses."""
RELEASE = 3.0
"""A promise that is kept within this many seconds needs no words."""
PATIENCE = 1.0
"""A gang's PodGroup and pods are told that it waits when it has waited this long: most start at once."""
ASSEMBLY = 2.0
"""… and that some of its pods are not made yet. Creation times are whole seconds, so this is one second at least."""


@dataclass(slots=True)
class Told:
    """What a gang was told last; `reason` is the attempt's own, before it was refined."""

    reason: Reason
    message: str
    at: float


@dataclass
class Scheduler:
    """Implements `api.Controller`."""

    settings: Settings = field(default_factory=Settings)
    name: str = "scheduler"
    kinds: tuple[Kind, ...] = KINDS
    following: Following = field(init=False)
    told: dict[str, Told] = field(default_factory=dict)
    figures: bool = False
    """Queue statuses may have changed since they were written last, at `figured`."""
    figured: float = 0.0
    due: float | None = None
    """When time alone may change the plan."""
    usage: Usage = field(init=False)
    saved: float = 0.0
    """When the queues' usage was saved last."""
    looked: bool = False
    """`snapshot` took in changes that no cycle has seen yet."""

    def __post_init__(self) -> None:
        self.following = Following(self.settings)
        self.usage = Usage(self.settings.half_life)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        self.following.note(change)
        return (THE_KEY,)

    def decide(self, view: View, key: Key, now: float) -> api.Decision:
        measured, wait = self._measure(view, now)
        changed = self.following.sync(view, now) or self.looked
        self.looked = False
        for name, q in self.following.planner.world.queues.items():
            q.usage = self.usage.shares.get(name, q.queue.usage)
        self.figures = self.figures or changed
        if not changed and (self.due is None or now < self.due):
            return api.Decision(tuple(measured), None if self.due is None else self.due - now)
        planner = self.following.planner
        plan = planner.cycle(keep=True)
        planner.world.reservations = {r.gang: r for r in plan.reservations}
        planner.world.keep(plan.earmarks)
        words, later = self._words(view, plan, now)
        planner.reset()
        actions = list(self._actions(view, plan, now))
        figures, behind = self._figures(view, plan, now)
        waits = [w for w in (plan.again, later, behind, wait) if w is not None]
        again = min(waits, default=None)
        self.due = None if again is None else now + again
        return api.Decision((*actions, *words, *figures, *measured), again)

    def _measure(self, view: View, now: float) -> tuple[list[api.Write], float | None]:
        """With time-based fair share: what queues held until now; once a minute it is saved, and shares are redone."""
        if self.settings.half_life <= 0:
            return [], None
        world = self.following.planner.world
        if self.usage.at is None:
            self.usage.recall(view.all(QUEUE), now)
        self.usage.advance(now, {name: q.counted for name, q in world.queues.items()}, world.total)
        wait = self.saved + SAVED_EVERY - now
        if 0 < wait <= SAVED_EVERY:
            return [], wait
        self.saved = now
        return list(queues.usages(self.usage, world, view)), SAVED_EVERY

    def snapshot(self, view: View, now: float) -> Snapshot:
        """What the next cycle would see: for `rowlock scheduler snapshot` and for `what_if.py`."""
        self.looked = self.following.sync(view, now) or self.looked
        world = self.following.planner.world
        return Snapshot(
            now=now,
            nodes=tuple(s.node for s in world.order),
            queues=tuple(replace(q.queue, usage=q.usage) for q in world.queues.values()),
            gangs=tuple(g.gang for g in world.gangs.values()),
            reservations=tuple(world.reservations.values()),
            settings=self.settings,
            earmarks=world.earmarks,
            lost=tuple(sorted(world.lost.items())),
        )

    # ------------------------------------------------------------ writes

    def _actions(self, view: View, plan: Plan, now: float) -> Iterator[api.Write]:
        world = self.following.planner.world
        yield from writes.evictions(world, view, plan.evicts, now)
        yield from writes.binds(world, plan.binds)
        for key in dict.fromkeys(b.gang for b in plan.binds):
            state = world.gangs[key]
            if self.told.pop(key, None) or state.gang.verdict or not state.gang.started:
                if not state.gang.bare:
                    yield writes.started(state.gang, now)
        for state in list(world.partial.values()):
            gang = state.gang
            if not gang.bare and below_minimum(state) != bool(gang.stale):
                yield writes.stale(gang, None if gang.stale else now)

    def _figures(self, view: View, plan: Plan, now: float) -> tuple[list[api.Write], float | None]:
        """Queue statuses, every few seconds at most; and when to come back for those that changed since."""
        if not self.figures:
            return [], None
        wait = self.figured + FIGURES_EVERY - now
        if 0 < wait <= FIGURES_EVERY:
            return [], wait
        if plan.binds or plan.evicts:
            return [], FIGURES_EVERY  # these change the figures again; what they become is written then
        found = list(queues.changed(self.following.planner.world, view, WORDS_PER_CYCLE))
        self.figures, self.figured = len(found) >= WORDS_PER_CYCLE, now
        return found, FIGURES_EVERY if self.figures else None

    def _words(self, view: View, plan: Plan, now: float) -> tuple[list[api.Write], float | None]:
        """Sentences for those who wait; and when to come back for those who must be told later."""
        found: list[api.Write] = []
        later: float | None = None
        explainer = Explainer(self.following.planner.world)
        for hold in islice(self.following.planner.holds(), LOOKS_PER_CYCLE):
            if len(found) >= WORDS_PER_CYCLE:
                later = 0.05
                break
            wait = self._not_yet(hold, now)
            if wait is not None:
                if wait > 0:
                    later = wait if later is None else min(later, wait)
                continue
            why = explainer.explain(hold)
            if why is None:
                continue
            state = self.following.planner.world.gangs[hold.gang]
            self.told[hold.gang] = Told(hold.failure.reason, why.message, now)
            found += self._tell(view, state, why, now)
        return found, later

    def _not_yet(self, hold: Hold, now: float) -> float | None:
        """None = tell now; else seconds until it should be looked at again (0 = when something changes)."""
        state = self.following.planner.world.gangs.get(hold.gang)
        if state is None:
            return 0.0
        patience = ASSEMBLY if hold.failure.reason is Reason.NOT_READY else PATIENCE
        if not state.gang.bare and (wait := state.gang.created + patience - now) > 0:
            return wait
        promise = self.following.planner.world.reservations.get(hold.gang)
        if hold.failure.reason is Reason.RELEASING and promise and (wait := promise.since + RELEASE - now) > 0:
            return wait
        told = self.told.get(hold.gang)
        if told is None:
            return None
        if told.reason == hold.failure.reason and now - told.at < SAME_REASON_AFTER:
            return 0.0
        return None

    def _tell(self, view: View, state: GangState, why: Explanation, now: float) -> Iterator[api.Write]:
        gang = state.gang
        repeated = gang.verdict == why.message
        message = why.kube if gang.bare else why.message
        if len(gang.tasks) > CROWD:
            message = f"{why.reason}: the gang waits; PodGroup {gang.name} says why."
        if not gang.bare and not repeated:
            yield from writes.waiting(gang, why, now)
        if why.reason is Reason.NOT_READY:
            return  # its pods are still being made: the group says so, once
        for t in state.tasks:
            if t.task.status != "Pending" or t.task.verdict == message:
                continue
            pod = view.get(POD, t.task.namespace, t.task.name)
            if pod is not None and not is_true(pod, "PodScheduled"):
                yield writes.unschedulable(pod, message, now)
                if gang.bare:
                    yield writes.failed_scheduling(t.task, message)
