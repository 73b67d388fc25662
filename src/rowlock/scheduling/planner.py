"""`plan(snapshot) -> Plan`: who is bound where, who is evicted for whom, who waits and why.

One cycle: fair shares; allocate, consolidate, reclaim, preempt, evict stale gangs, least disruptive first; all on one
world with an undo log; at the end the moves that stand are read off as decisions. No clock, no I/O, no chance: the
same snapshot gives the same plan for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf

from rowlock.scheduling import fairshare, reserve
from rowlock.scheduling.allocate import Failure, Reason, attempt, gate
from rowlock.scheduling.consolidate import consolidate, worth_consolidating
from rowlock.scheduling.order import Tournament, wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.plan import Bind, Decision, Evict, Hold, Plan
from rowlock.scheduling.preempt import preempt, worth_preempting
from rowlock.scheduling.protection import first_unprotected
from rowlock.scheduling.reclaim import entitled, reclaim
from rowlock.scheduling.snapshot import Reservation, Snapshot, Status
from rowlock.scheduling.stale import due, evict_lost, evict_stale, loss_due
from rowlock.scheduling.waiting import Waiting
from rowlock.scheduling.world import GangState, TaskState, World, build

Act = Callable[[World, Placer, GangState], bool]
Worth = Callable[[World, GangState], bool]
TAKING: dict[str, tuple[Worth, Act]] = {
    "consolidate": (worth_consolidating, consolidate),
    "reclaim": (entitled, reclaim),
    "preempt": (worth_preempting, preempt),
}
"""The acts that take from others, each with a quick test whether an asker need be tried at all."""


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
    timers: list[float] = field(default_factory=list)
    """Seconds until something that only waits for time."""
    protecting: bool = False
    """Some queue has a min-runtime."""
    causes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Why a gang loses pods in this plan: gang → (act, by whom)."""

    def __post_init__(self) -> None:
        self.placer = Placer(self.world)
        self.waiting = Waiting(self.world)
        self.waiting.fill()

    def cycle(self, *, keep: bool = False) -> Plan:
        """Plan once. With `keep` the plan stays in the world until `reset`, and holds are left to `holds()`."""
        world = self.world
        self.failures.clear()
        self.causes.clear()
        self.timers.clear()
        queues = [q.queue for q in world.queues.values()]
        self.protecting = any(q.preempt_min_runtime or q.reclaim_min_runtime for q in queues)
        mark = world.mark()
        fairshare.refresh(world)
        before = world.earmarks
        reserve.settle(world, self.placer, self.waiting)
        for act in world.settings.actions:
            if act == "allocate":
                self._allocate()
            elif act == "reserve":
                self._reserve()
            elif act == "stale":
                self._stale()
            else:
                self._take(act)
        self._redeem(mark)
        decisions, promises = self._collect(mark)
        if not keep:
            decisions += self.holds()
            self.reset()
        kept = tuple(self._reservation(key, nodes) for key, nodes in promises.items())
        chosen = world.earmarks
        if not keep:
            world.keep(before)
        return Plan(tuple(decisions), kept, self._again(), chosen)

    def reset(self) -> None:
        """The world as it was before the cycle."""
        self.world.rollback(0)
        self.world.trim()
        for state in self.joined:
            state.served = False
            if state.queue is not None and not state.active:
                state.queue.discharge(state.gang.key)
        self.joined.clear()

    # ------------------------------------------------------------ acts

    def _allocate(self) -> None:
        promised = self._promised()
        order = Tournament(self.world, [g for g in self.waiting.ready() if self._has_chance(g[0])])
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

    def _has_chance(self, head: GangState) -> bool:
        """Room only shrinks while allocating: whom the first look refuses need not stand in line."""
        tasks = wanted(head)
        if not tasks:
            return head.pending > 0
        failure = gate(head, self.world.need(tasks))
        if failure is None:
            shape = tasks[0].task.shape
            if not shape.unsupported and self.placer.ranking(shape).best() is not None:
                return True
            reason = Reason.UNSUPPORTED if shape.unsupported else Reason.DOES_NOT_FIT
            failure = Failure(reason, head.gang.queue, task=tasks[0].task.name, shape=shape, needed=len(tasks))
        self.failures[head.gang.key] = failure
        return False

    def _joined(self, state: GangState) -> None:
        """It has planned pods now: a later act of this cycle may take them back."""
        assert state.queue is not None
        state.queue.enlist(state)
        self.joined.append(state)

    def _promised(self) -> set[str]:
        """Gangs that come before all queues: half bound ones (a crash fell between the binds), then promised ones."""
        first = {key: g for key, g in self.world.partial.items() if g.pending and key in self.waiting.where}
        for key in self.world.reservations:
            if key in self.waiting.where:
                first.setdefault(key, self.world.gangs[key])
        done: set[str] = set()
        order = sorted(first.values(), key=lambda g: (g.active == 0, self._since(g), g.gang.created, g.gang.key))
        for g in order:
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
        worth, act = TAKING[name]
        self.world.forget()
        order = Tournament(self.world, [g for g in self.waiting.ready() if worth(self.world, g[0])])
        while (state := order.pop()) is not None:
            if not state.pending or promised(state):
                continue
            mark = self.world.mark()
            patience = state.gang.created + state.gang.delay - self.world.now if state.gang.delay else 0.0
            if patience > 0:
                self.timers.append(patience)
            if patience > 0 or not act(self.world, self.placer, state):
                self._protected(state, name)
                order.dismiss()
                continue
            self.world.forget()
            self._joined(state)
            state.served |= self._blame(name, state, mark)
            order.refresh()

    def _reserve(self) -> None:
        """Those who are guests on the nodes kept for a gang yield when it can start."""
        for kept in self.world.earmarks:
            mark = self.world.mark()
            state, again = reserve.clear(self.world, self.placer, kept)
            if again is not None:
                self.timers.append(again)
            if state is None:
                continue
            self.world.forget()
            self._joined(state)
            self._blame("reserve", state, mark)

    def _blame(self, act: str, asker: GangState, mark: int) -> bool:
        """Note why others lose pods since `mark`, and for whom; False when nobody does. Who was only moved had lost nothing
        before. What others left for one that has lost its promise is left for the asker now."""
        losers = dict.fromkeys(task.gang for task, *_ in self.world.log[mark:] if task.gang is not asker)
        for loser in losers:
            key = loser.gang.key
            if self.causes.get(key, ("consolidate",))[0] == "consolidate":
                self.causes[key] = (act, asker.gang.key)
            if not promised(loser):
                heirs = [gang for gang, (_, by) in self.causes.items() if by == key]
                self.causes.update((gang, (self.causes[gang][0], asker.gang.key)) for gang in heirs)
        return bool(losers)

    def _stale(self) -> None:
        for state in evict_lost(self.world):
            self.causes[state.gang.key] = ("lost", "")
        for state in evict_stale(self.world):
            self.causes.setdefault(state.gang.key, ("stale", ""))

    def _protected(self, state: GangState, act: str) -> None:
        """Remember when a min-runtime ends that stands in the asker's way."""
        if not self.protecting or act == "consolidate":
            return
        wait = first_unprotected(self.world, state, act)
        if wait is not None:
            self.timers.append(wait)
            self.failures[state.gang.key] = Failure(Reason.PROTECTED, state.gang.queue, seconds=wait)

    def _redeem(self, mark: int) -> None:
        """A promise that needs nobody to leave is kept at once. Its room was planned for others in this very cycle; as a
        mere promise it could be taken back by them in the next, and so on for ever."""
        world = self.world
        moved = dict.fromkeys(entry[0] for entry in world.log[mark:])
        later = [t for t in moved if t.status is Status.PIPELINED]
        leaving = [t for t in moved if t.status is Status.RELEASING and t.task.status is not Status.RELEASING]
        waiting = {self.causes.get(t.gang.gang.key, ("", ""))[1] for t in leaving}
        for state in dict.fromkeys(t.gang for t in later):
            mine = [t for t in later if t.gang is state]
            if state.gang.key in waiting or any(t.origin is not None for t in mine):
                continue
            before = world.mark()
            for t in mine:
                world.move(t, Status.PENDING)
            if attempt(world, self.placer, state, tasks=mine) is not None or promised(state):
                world.rollback(before)

    # ------------------------------------------------------------ reading the plan off

    def _collect(self, mark: int) -> tuple[list[Decision], dict[str, list[tuple[str, str]]]]:
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
        return decisions, promises

    def _reservation(self, key: str, nodes: list[tuple[str, str]]) -> Reservation:
        old = self.world.reservations.get(key)
        return Reservation(key, tuple(nodes), old.since if old else self.world.now)

    def heads(self) -> Iterator[Hold]:
        """Those that were tried, one for each group of equals, and those that cannot even be tried."""
        for group in self.waiting.ready():
            yield from islice(self._held(group), 1)
        for key, text in self.waiting.unready.items():
            yield Hold(key, Failure(Reason.NOT_READY, task=text))
        for key, g in self.waiting.homeless.items():
            yield Hold(key, Failure(Reason.QUEUE_MISSING, g.gang.queue))

    def holds(self) -> Iterator[Hold]:
        """Everybody who waits, heads first. Only between `cycle(keep=True)` and `reset`."""
        rest = (islice(self._held(group), 1, None) for group in self.waiting.ready())
        return chain(self.heads(), chain.from_iterable(rest))

    def _held(self, group: list[GangState]) -> Iterator[Hold]:
        failure: Failure | None = None
        ahead = 0
        for g in group:
            failure = self.failures.get(g.gang.key, failure)
            if not g.pending or promised(g):
                if g.active and promised(g):
                    yield Hold(g.gang.key, Failure(Reason.RELEASING, g.gang.queue))
            elif failure is not None:
                yield Hold(g.gang.key, failure, ahead)
                ahead += 1

    def _again(self) -> float | None:
        waits = [w for g in self.world.partial.values() if (w := due(self.world, g)) is not None and w > 0]
        waits += [w for g in self.world.stray.values() if 0 < (w := loss_due(self.world, g)) < inf]
        return min(waits + self.timers, default=None)


def promised(state: GangState) -> bool:
    """Some of its pods wait for room that others are leaving."""
    return any(s.active > s.real for s in state.sets.values())
