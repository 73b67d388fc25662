"""`plan(snapshot) -> Plan`: who is bound where, who is evicted for whom, who waits and why.

One cycle: fair shares; allocate, consolidate, reclaim, preempt, evict stale gangs, least disruptive first; all on one
world with an undo log; at the end the moves that stand are read off as decisions. No clock, no I/O, no chance: the
same snapshot gives the same plan for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rowlock.scheduling import fairshare
from rowlock.scheduling.allocate import Failure, Reason, attempt, unready
from rowlock.scheduling.consolidate import consolidate
from rowlock.scheduling.order import Tournament
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.preempt import preempt
from rowlock.scheduling.reclaim import reclaim
from rowlock.scheduling.snapshot import Reservation, Snapshot, Status
from rowlock.scheduling.stale import due, evict_stale
from rowlock.scheduling.waiting import Waiting
from rowlock.scheduling.world import GangState, TaskState, World, build

Act = Callable[[World, Placer, GangState], bool]
TAKING: dict[str, Act] = {"consolidate": consolidate, "reclaim": reclaim, "preempt": preempt}


@dataclass(frozen=True, slots=True)
class Bind:
    """Put this pod on this node, on these cards (indices)."""

    namespace: str
    pod: str
    uid: str
    node: str
    devices: tuple[int, ...]
    gang: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete this pod. `act` is reclaim, preempt, consolidate or stale; `by` the gang it makes room for."""

    namespace: str
    pod: str
    uid: str
    gang: str
    act: str
    by: str = ""
    moves_to: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """This gang waits, because of `failure`. Equal gangs of its queue share the failure of the first of them."""

    gang: str
    failure: Failure
    ahead: int = 0
    """How many of its equals stand before it."""


Decision = Bind | Evict | Hold


@dataclass(frozen=True, slots=True)
class Plan:
    decisions: tuple[Decision, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    again: float | None = None
    """When time alone may change the plan: seconds from now."""

    @property
    def binds(self) -> list[Bind]:
        return [d for d in self.decisions if isinstance(d, Bind)]

    @property
    def evicts(self) -> list[Evict]:
        return [d for d in self.decisions if isinstance(d, Evict)]

    @property
    def holds(self) -> list[Hold]:
        return [d for d in self.decisions if isinstance(d, Hold)]


def plan(snapshot: Snapshot) -> Plan:
    """Decide everything once."""
    return Planner(build(snapshot)).cycle()


@dataclass(slots=True)
class Planner:
    """A world with what is worth keeping between cycles. After `cycle` the world is as before, unless `keep`: then `reset` follows."""

    world: World
    placer: Placer = field(init=False)
    waiting: Waiting = field(init=False)
    failures: dict[str, Failure] = field(default_factory=dict)
    joined: list[GangState] = field(default_factory=list)
    causes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Why a gang loses pods in this plan: gang → (act, by whom)."""

    def __post_init__(self) -> None:
        self.placer = Placer(self.world)
        self.waiting = Waiting(self.world)
        self.waiting.fill()

    def cycle(self, *, keep: bool = False) -> Plan:
        world = self.world
        self.failures.clear()
        self.causes.clear()
        mark = world.mark()
        fairshare.refresh(world)
        for act in world.settings.actions:
            if act == "allocate":
                self._allocate()
            elif act == "stale":
                for state in evict_stale(world):
                    self.causes[state.gang.key] = ("stale", "")
            else:
                self._take(act)
        result = self._collect(mark)
        if not keep:
            self.reset()
        return result

    def reset(self) -> None:
        """The world as it was before the cycle."""
        self.world.rollback(0)
        self.world.trim()
        for state in self.joined:
            if state.queue is not None and not state.active:
                state.queue.running.pop(state.gang.key, None)
        self.joined.clear()

    # ------------------------------------------------------------ acts

    def _allocate(self) -> None:
        promised = self._promised()
        order = Tournament(self.world, [g for g in self.waiting.ready() if g[0].gang.key not in promised])
        while (state := order.pop()) is not None:
            if state.gang.key in promised:
                continue
            failure = attempt(self.world, self.placer, state)
            if failure is not None:
                self.failures[state.gang.key] = failure
                order.dismiss()
                continue
            self._joined(state)
            if state.pending:
                order.push(state)

    def _joined(self, state: GangState) -> None:
        """It has planned pods now: a later act of this cycle may take them back."""
        assert state.queue is not None
        if state.queue.running.setdefault(state.gang.key, state) is state:
            self.joined.append(state)

    def _promised(self) -> set[str]:
        """Gangs that come before all queues: half bound ones (a crash fell between the binds), then promised ones."""
        first = [
            g
            for group in self.waiting.ready()
            for g in group
            if g.gang.key in self.world.reservations or (g.active and g.elasticity() == 0)
        ]
        done: set[str] = set()
        first.sort(key=lambda g: (g.active == 0, self._since(g), g.gang.created, g.gang.uid))
        for g in first:
            reservation = self.world.reservations.get(g.gang.key)
            nodes = dict(reservation.nodes) if reservation else None
            if attempt(self.world, self.placer, g, promised=nodes) is None:
                self._joined(g)
                done.add(g.gang.key)
        return done

    def _since(self, g: GangState) -> float:
        reservation = self.world.reservations.get(g.gang.key)
        return reservation.since if reservation else 0.0

    def _take(self, name: str) -> None:
        act = TAKING[name]
        order = Tournament(self.world, list(self.waiting.ready()))
        while (state := order.pop()) is not None:
            if any(t.status is Status.PIPELINED for t in state.tasks) or not state.pending:
                continue
            mark = self.world.mark()
            if self.world.now - state.gang.created < state.gang.delay or not act(self.world, self.placer, state):
                order.dismiss()
                continue
            self._joined(state)
            for task, *_ in self.world.log[mark:]:
                if task.gang is not state:
                    self.causes.setdefault(task.gang.gang.key, (name, state.gang.key))
            order.refresh()

    # ------------------------------------------------------------ reading the plan off

    def _collect(self, mark: int) -> Plan:
        moved: dict[TaskState, None] = {}
        for entry in self.world.log[mark:]:
            moved.setdefault(entry[0])
        decisions: list[Decision] = []
        promises: dict[str, list[tuple[str, str]]] = {}
        for t in moved:
            gang = t.gang.gang
            if t.status is Status.ALLOCATED:
                decisions.append(Bind(t.task.namespace, t.task.name, t.task.uid, t.node, t.devices, gang.key))
            elif (t.status is Status.RELEASING and t.task.status is not Status.RELEASING) or t.origin is not None:
                act, by = self.causes.get(gang.key, ("", ""))
                target = t.node if t.status is Status.PIPELINED else ""
                decisions.append(Evict(t.task.namespace, t.task.name, t.task.uid, gang.key, act, by, target))
            if t.status is Status.PIPELINED:
                promises.setdefault(gang.key, []).append((t.task.name, t.node))
        decisions += self._holds()
        kept = tuple(self._reservation(key, nodes) for key, nodes in promises.items())
        return Plan(tuple(decisions), kept, self._again())

    def _reservation(self, key: str, nodes: list[tuple[str, str]]) -> Reservation:
        old = self.world.reservations.get(key)
        return Reservation(key, tuple(nodes), old.since if old else self.world.now)

    def _holds(self) -> list[Hold]:
        found: list[Hold] = []
        for group in self.waiting.ready():
            failure: Failure | None = None
            ahead = 0
            for g in group:
                failure = self.failures.get(g.gang.key, failure)
                if any(t.status is Status.PIPELINED for t in g.tasks):
                    found.append(Hold(g.gang.key, Failure(Reason.RELEASING, g.gang.queue)))
                elif g.pending and failure is not None:
                    found.append(Hold(g.gang.key, failure, ahead))
                    ahead += 1
        found += [Hold(key, Failure(Reason.NOT_READY, task=text)) for key, text in self.waiting.unready.items()]
        missing = self.waiting.homeless
        found += [Hold(key, Failure(Reason.QUEUE_MISSING, g.gang.queue)) for key, g in missing.items()]
        return found

    def _again(self) -> float | None:
        waits = [w for g in self.world.active_gangs() if (w := due(self.world, g)) is not None and w > 0]
        return min(waits, default=None)


__all__ = ["Bind", "Decision", "Evict", "Hold", "Plan", "Planner", "plan", "unready"]
