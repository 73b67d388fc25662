"""The search for victims: one algorithm for reclaim, preempt and consolidation.

For the first 1, 2, ... n pods of the asker: begin with the victims found so far; add victim steps in reverse order;
on each node of the newest victim evict what touches it, virtually place the asker and then the victims, in fair
order; accept what the rule allows, undo everything else. A victim that finds its old place again was never disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rowlock.scheduling.allocate import attempt
from rowlock.scheduling.order import Tournament, wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.victims import Step, Victims
from rowlock.scheduling.world import ACTIVE, GangState, Place, TaskState, World

EXACT = 4
"""Up to so many pods are searched exactly as KAI does; more are first tried in one sweep."""
BUDGET = 50_000
"""Placements that one search may simulate: a hopeless one must not hold up the cluster."""

Validate = Callable[[Sequence[TaskState], Sequence[Step]], bool]
"""Is this set of asker's tasks against these steps (their tasks that stay evicted or move) allowed?"""


@dataclass(frozen=True, slots=True)
class Search:
    """What one act asks of the solver."""

    asker: GangState
    victims: Victims
    validate: Validate


class Solver:
    def __init__(self, world: World, placer: Placer) -> None:
        self.world, self.placer = world, placer
        self.work = BUDGET
        self.start = 0
        """Where in the log the search began."""

    def solve(self, search: Search) -> bool:
        """True: the plan is in the world's log. False: the world is as it was."""
        world = self.world
        tasks = wanted(search.asker)
        if not tasks or not self._possible(tasks) or search.victims.step(0) is None or not self._hopeful(search, tasks):
            return False
        before = search.asker.active
        mark = self.start = world.mark()
        self.work = BUDGET
        if not self._search(search, tasks):
            world.rollback(mark)
            return False
        if search.asker.active <= before:
            world.rollback(mark)
            return False
        return True

    def _search(self, search: Search, tasks: Sequence[TaskState]) -> bool:
        if len(tasks) <= EXACT:
            return self._exact(search, tasks)
        if search.asker.gang.required:  # all of them in one region: pods one by one would wander off
            return self._partial(search, tasks, []) is not None
        return self._greedy(search, tasks) or self._exact(search, tasks)

    def _exact(self, search: Search, tasks: Sequence[TaskState]) -> bool:
        """KAI's way: everything again for each further pod."""
        chosen: list[Step] = []
        for k in range(1, len(tasks) + 1):
            self.world.rollback(self.start)
            found = self._partial(search, tasks[:k], chosen)
            if found is None:
                return False
            chosen = found
        return True

    def _greedy(self, search: Search, tasks: Sequence[TaskState]) -> bool:
        """For many pods: find the victims pod by pod in one sweep, then simulate once and ask the rule once."""
        world = self.world
        chosen: list[Step] = []
        here: dict[str, list[Step]] = {}
        index = 0
        for task in tasks:
            while not self.placer.place(task, only_later=True):
                step = search.victims.step(index)
                if step is None:
                    world.rollback(self.start)
                    return False
                index += 1
                chosen += self._open(task, step, here)
        world.rollback(self.start)
        for step in chosen:
            self._evict(step.tasks)
        if self._simulate(search, tasks, chosen) is None:
            world.rollback(self.start)
            return False
        return True

    def _open(self, task: TaskState, step: Step, here: dict[str, list[Step]]) -> list[Step]:
        """The steps that, leaving one node of this step together, make room for the task: they stay evicted."""
        for node in step.nodes:
            here.setdefault(node, []).append(step)
        mark = self.world.mark()
        for node in step.nodes:
            fresh = [s for s in here[node] if s.tasks[0].status is not Status.RELEASING]
            for s in fresh:
                self._evict(s.tasks)
            if self.placer.ranking_for(task.gang, task.task.shape).best() is not None:
                del here[node]
                return fresh
            self.world.rollback(mark)
        return []

    def _possible(self, tasks: Sequence[TaskState]) -> bool:
        """Is there, for each shape, a node that could hold it if it were empty?"""
        return all(self.placer.ranking(shape).possible() for shape in {t.task.shape for t in tasks})

    def _hopeful(self, search: Search, tasks: Sequence[TaskState]) -> bool:
        """Would it fit if every possible victim left? If not, nobody need be tried."""
        mark = self.world.mark()
        index = 0
        while (step := search.victims.step(index)) is not None:
            self._evict(step.tasks)
            index += 1
        fits = index > 0 and all(self.placer.place(t, only_later=True) for t in tasks)
        self.world.rollback(mark)
        return fits

    def _partial(self, search: Search, tasks: Sequence[TaskState], chosen: list[Step]) -> list[Step] | None:
        """Victims for the first pods of the asker; on success the plan stays in the world."""
        world = self.world
        mark = world.mark()
        for old in chosen:
            self._evict(old.tasks)
        if chosen or len(tasks) > 1:
            kept = self._simulate(search, tasks, chosen)
            if kept is not None:
                return kept
        recorded = {id(t) for s in chosen for t in s.tasks}
        potential: list[Step] = []
        index = 0
        while self.work > 0 and (step := search.victims.step(index)) is not None:
            index += 1
            left = tuple(t for t in step.tasks if id(t) not in recorded)
            if not left:
                continue
            step = replace(step, tasks=left)  # of a gang that was partly moved for an earlier pod: the others
            potential.append(step)
            for node in step.nodes:
                here = [s for s in potential if node in s.nodes]
                inner = world.mark()
                for s in here:
                    self._evict(s.tasks)
                kept = self._simulate(search, tasks, [*chosen, *here])
                if kept is not None:
                    return kept
                world.rollback(inner)
        world.rollback(mark)
        return None

    def _evict(self, tasks: Iterable[TaskState]) -> None:
        for t in tasks:
            if t.status in (Status.BOUND, Status.RUNNING):
                self.world.move(t, Status.RELEASING, t.node, t.devices)
            elif t.status is Status.RELEASING:
                continue  # it leaves already
            elif t.origin is not None:
                self.world.move(t, Status.RELEASING, *t.origin)
            else:
                self.world.move(t, Status.PENDING)

    def _simulate(self, search: Search, tasks: Sequence[TaskState], steps: list[Step]) -> list[Step] | None:
        """Asker and victims compete for the room in fair order. Returns the steps that really lose something."""
        world = self.world
        mark = world.mark()
        self.work -= len(tasks) + sum(len(s.tasks) for s in steps)
        states: dict[TaskState, Place | None] = {
            t: (t.node, t.devices) if t.status is Status.RELEASING else None for s in steps for t in s.tasks
        }
        gangs = {id(s.gang): s.gang for s in steps}
        for t, home in states.items():
            # a task that left its place wants back in: pending again, with its origin still occupied
            world.move(t, Status.PENDING, origin=home)
        order = Tournament(world, [[g] for g in (search.asker, *gangs.values())])
        placed = False
        while (gang := order.pop()) is not None:
            if gang is search.asker:
                if placed:
                    continue
                if attempt(world, self.placer, gang, only_later=True, tasks=tasks) is not None:
                    break
                placed = True
                continue
            mine = [t for t in wanted(gang) if t in states]
            if mine and attempt(world, self.placer, gang, only_later=True, tasks=mine) is None:
                if wanted(gang):
                    order.push(gang)
        if placed:
            losers = self._whole(self._settle(steps, states))
            if search.validate(tasks, losers):
                return losers
        world.rollback(mark)
        return None

    def _settle(self, steps: Sequence[Step], states: dict[TaskState, Place | None]) -> list[Step]:
        """Put back who returned to the same place; those who found none are releasing."""
        self._swap_cards(states)
        losers: list[Step] = []
        for step in steps:
            lost: list[TaskState] = []
            for t in step.tasks:
                home = states[t]
                if t.status is Status.PENDING:
                    if home is not None:
                        self.world.move(t, Status.RELEASING, *home)
                    lost.append(t)
                elif (t.node, t.devices) == home:
                    self.world.move(t, t.task.status, t.node, t.devices)
                else:
                    lost.append(t)
            if lost:
                losers.append(replace(step, tasks=tuple(lost)))
        return losers

    def _whole(self, losers: list[Step]) -> list[Step]:
        """Who would be left with less than its minimum leaves wholly: half a gang only holds its cards."""
        found: list[Step] = []
        for step in losers:
            rest = [t for t in step.gang.tasks if t.status in ACTIVE and t not in step.tasks]
            if rest and step.gang.elasticity() == 0 and _ran_whole(step.gang):
                self._evict(rest)
                step = replace(step, tasks=(*step.tasks, *rest), whole=True)
            found.append(step)
        return found

    def _swap_cards(self, states: dict[TaskState, Place | None]) -> None:
        """A victim that returned to its node but to another whole card swaps with whoever was promised its own."""
        world = self.world
        for t, home in states.items():
            if home is None:
                continue
            node, own = home
            if t.node != node or t.devices == own or not t.task.shape.gpus:
                continue
            cards = set(own)
            others = [o for o in self._promised(node) if o is not t and o.task.shape.gpus and cards & set(o.devices)]
            mark = world.mark()
            given = [d for d in t.devices if d not in cards]
            world.move(t, Status.PENDING, origin=t.origin)
            for o in others:
                wanted_cards = [d for d in o.devices if d not in cards]
                taken = len(o.devices) - len(wanted_cards)
                swapped, given = tuple(sorted(wanted_cards + given[:taken])), given[taken:]
                world.move(o, Status.PIPELINED, node, swapped, origin=o.origin)
            state = world.nodes[node]
            if all(state.used[d] == state.back[d] for d in own):
                world.move(t, Status.PIPELINED, node, own, origin=t.origin)
            else:
                world.rollback(mark)

    def _promised(self, node: str) -> list[TaskState]:
        """Tasks pipelined to the node since the search began."""
        seen = dict.fromkeys(entry[0] for entry in self.world.log[self.start :])
        return [t for t in seen if t.status is Status.PIPELINED and t.node == node]


def _ran_whole(gang: GangState) -> bool:
    """Had it its minimum before this cycle?"""
    return all(s.done + sum(t.task.status in ACTIVE for t in s.tasks) >= s.minimum for s in gang.sets.values())
