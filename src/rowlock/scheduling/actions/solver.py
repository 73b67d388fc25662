"""The search for victims, shared by reclaim, preempt and consolidation.

For the first 1, 2, ... n pods of the preemptor: begin with the victims found so far; add victim steps in reverse order; for each node of
the newest victim, evict the victims on it in simulation, and place the preemptor and the victims in fair order. Keep the result if the
action's rule allows it, else undo it. A victim that gets its old place back is not evicted. This is KAI's `JobSolver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rowlock.scheduling.actions.allocate import allocate_gang
from rowlock.scheduling.actions.victims import EvictionStep, VictimsQueue
from rowlock.scheduling.model.gang_state import ACTIVE_STATUSES, GangState, Placement, TaskState
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Status
from rowlock.scheduling.policy.order import JobsOrderByQueues, tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer

EXACT_SEARCH_PODS = 4
"""Up to so many pods the search is exactly KAI's; for more a greedy sweep is tried first."""
SIMULATION_BUDGET = 50_000
"""Maximum of placements that one search may simulate, so that a hopeless one does not delay the cycle."""

Validate = Callable[[Sequence[TaskState], Sequence[EvictionStep]], bool]
"""(preemptor's tasks, steps whose tasks stay evicted or move) → whether the action may do that."""


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """The input of a search by one action (reclaim, preempt, consolidate)."""

    preemptor: GangState
    victims: VictimsQueue
    validate: Validate


class Solver:
    """Searches victims in a session. Evictions and placements are simulated in its undo log and rolled back if they do not help."""

    def __init__(self, session: Session, placer: Placer) -> None:
        self.session, self.placer = session, placer
        self.budget = SIMULATION_BUDGET
        self.start_checkpoint = 0
        """The session's checkpoint at the start of the search."""

    def solve(self, search: VictimSearch) -> bool:
        """Find victims for the preemptor. True: the evictions and placements are in the session's log. False: nothing has changed."""
        session = self.session
        tasks = tasks_to_allocate(search.preemptor)
        if (
            not tasks
            or not self._has_feasible_nodes(tasks)
            or search.victims.step(0) is None
            or not self._fits_without_victims(search, tasks)
        ):
            return False
        active_before = search.preemptor.active_count
        checkpoint = self.start_checkpoint = session.checkpoint()
        self.budget = SIMULATION_BUDGET
        if not self._search(search, tasks):
            session.rollback(checkpoint)
            return False
        if search.preemptor.active_count <= active_before:
            session.rollback(checkpoint)
            return False
        return True

    def _search(self, search: VictimSearch, tasks: Sequence[TaskState]) -> bool:
        if len(tasks) <= EXACT_SEARCH_PODS:
            return self._search_exact(search, tasks)
        if search.preemptor.gang.required:  # all in one domain: pods placed one by one could get different ones
            return self._search_victims(search, tasks, []) is not None
        return self._search_greedy(search, tasks) or self._search_exact(search, tasks)

    def _search_exact(self, search: VictimSearch, tasks: Sequence[TaskState]) -> bool:
        """KAI's search: repeat it for each further pod of the preemptor."""
        victims_so_far: list[EvictionStep] = []
        for k in range(1, len(tasks) + 1):
            self.session.rollback(self.start_checkpoint)
            victims = self._search_victims(search, tasks[:k], victims_so_far)
            if victims is None:
                return False
            victims_so_far = victims
        return True

    def _search_greedy(self, search: VictimSearch, tasks: Sequence[TaskState]) -> bool:
        """For many pods: collect victims pod by pod in one sweep, then simulate and validate once."""
        session = self.session
        victims: list[EvictionStep] = []
        steps_by_node: dict[str, list[EvictionStep]] = {}
        index = 0
        for task in tasks:
            while not self.placer.place_task(task, pipeline_only=True):
                step = search.victims.step(index)
                if step is None:
                    session.rollback(self.start_checkpoint)
                    return False
                index += 1
                victims += self._evict_from_one_node(task, step, steps_by_node)
        session.rollback(self.start_checkpoint)
        for step in victims:
            self._evict(step.tasks)
        if self._simulate(search, tasks, victims) is None:
            session.rollback(self.start_checkpoint)
            return False
        return True

    def _evict_from_one_node(
        self, task: TaskState, step: EvictionStep, steps_by_node: dict[str, list[EvictionStep]]
    ) -> list[EvictionStep]:
        """Evict the steps on one node of `step` so that the task fits there. Returns the evicted steps; [] if no node has enough."""
        for node in step.nodes:
            steps_by_node.setdefault(node, []).append(step)
        checkpoint = self.session.checkpoint()
        for node in step.nodes:
            new_victims = [s for s in steps_by_node[node] if s.tasks[0].status is not Status.RELEASING]
            for s in new_victims:
                self._evict(s.tasks)
            if self.placer.ranking_for(task.gang, task.task.shape).best_node() is not None:
                del steps_by_node[node]
                return new_victims
            self.session.rollback(checkpoint)
        return []

    def _has_feasible_nodes(self, tasks: Sequence[TaskState]) -> bool:
        """Whether for each shape some node could hold it if the node were empty."""
        return all(self.placer.node_ranking(shape).has_feasible_node() for shape in {t.task.shape for t in tasks})

    def _fits_without_victims(self, search: VictimSearch, tasks: Sequence[TaskState]) -> bool:
        """Whether the tasks would fit if all possible victims left. If not, the search is skipped."""
        checkpoint = self.session.checkpoint()
        index = 0
        while (step := search.victims.step(index)) is not None:
            self._evict(step.tasks)
            index += 1
        fits = index > 0 and all(self.placer.place_task(t, pipeline_only=True) for t in tasks)
        self.session.rollback(checkpoint)
        return fits

    def _search_victims(
        self, search: VictimSearch, tasks: Sequence[TaskState], victims_so_far: list[EvictionStep]
    ) -> list[EvictionStep] | None:
        """Victims for the preemptor's first pods (`tasks`), or None; on success the plan stays in the session."""
        session = self.session
        checkpoint = session.checkpoint()
        for victim in victims_so_far:
            self._evict(victim.tasks)
        if victims_so_far or len(tasks) > 1:
            victims = self._simulate(search, tasks, victims_so_far)
            if victims is not None:
                return victims
        recorded = {id(t) for s in victims_so_far for t in s.tasks}
        potential: list[EvictionStep] = []
        index = 0
        while self.budget > 0 and (step := search.victims.step(index)) is not None:
            index += 1
            unrecorded = tuple(t for t in step.tasks if id(t) not in recorded)
            if not unrecorded:
                continue
            step = replace(step, tasks=unrecorded)  # the rest of a gang that was partly evicted for an earlier pod
            potential.append(step)
            for node in step.nodes:
                node_steps = [s for s in potential if node in s.nodes]
                node_checkpoint = session.checkpoint()
                for s in node_steps:
                    self._evict(s.tasks)
                victims = self._simulate(search, tasks, [*victims_so_far, *node_steps])
                if victims is not None:
                    return victims
                session.rollback(node_checkpoint)
        session.rollback(checkpoint)
        return None

    def _evict(self, tasks: Iterable[TaskState]) -> None:
        for t in tasks:
            if t.status in (Status.BOUND, Status.RUNNING):
                self.session.move_task(t, Status.RELEASING, t.node, t.devices)
            elif t.status is Status.RELEASING:
                continue  # already evicted
            elif t.origin is not None:
                self.session.move_task(t, Status.RELEASING, *t.origin)
            else:
                self.session.move_task(t, Status.PENDING)

    def _simulate(
        self, search: VictimSearch, tasks: Sequence[TaskState], steps: list[EvictionStep]
    ) -> list[EvictionStep] | None:
        """Place the preemptor and the victims in fair order. Returns the steps that lose or move tasks; None on failure."""
        session = self.session
        checkpoint = session.checkpoint()
        self.budget -= len(tasks) + sum(len(s.tasks) for s in steps)
        old_places: dict[TaskState, Placement | None] = {
            t: (t.node, t.devices) if t.status is Status.RELEASING else None for s in steps for t in s.tasks
        }
        gangs = {id(s.gang): s.gang for s in steps}
        for t, place in old_places.items():
            # an evicted task may return: pending again, while its origin stays occupied
            session.move_task(t, Status.PENDING, origin=place)
        order = JobsOrderByQueues(session, [[g] for g in (search.preemptor, *gangs.values())])
        preemptor_placed = False
        while (gang := order.pop_gang()) is not None:
            if gang is search.preemptor:
                if preemptor_placed:
                    continue
                if allocate_gang(session, self.placer, gang, pipeline_only=True, tasks=tasks) is not None:
                    break
                preemptor_placed = True
                continue
            gang_tasks = [t for t in tasks_to_allocate(gang) if t in old_places]
            if gang_tasks and allocate_gang(session, self.placer, gang, pipeline_only=True, tasks=gang_tasks) is None:
                if tasks_to_allocate(gang):
                    order.push_gang(gang)
        if preemptor_placed:
            victims = self._extend_to_whole_gangs(self._restore_returned(steps, old_places))
            if search.validate(tasks, victims):
                return victims
        session.rollback(checkpoint)
        return None

    def _restore_returned(
        self, steps: Sequence[EvictionStep], old_places: dict[TaskState, Placement | None]
    ) -> list[EvictionStep]:
        """Restore tasks that got their old place back; tasks without a place become releasing. Returns the remaining victims."""
        self._swap_devices(old_places)
        victims: list[EvictionStep] = []
        for step in steps:
            lost_tasks: list[TaskState] = []
            for t in step.tasks:
                old_place = old_places[t]
                if t.status is Status.PENDING:
                    if old_place is not None:
                        self.session.move_task(t, Status.RELEASING, *old_place)
                    lost_tasks.append(t)
                elif (t.node, t.devices) == old_place:
                    self.session.move_task(t, t.task.status, t.node, t.devices)
                else:
                    lost_tasks.append(t)
            if lost_tasks:
                victims.append(replace(step, tasks=tuple(lost_tasks)))
        return victims

    def _extend_to_whole_gangs(self, victims: list[EvictionStep]) -> list[EvictionStep]:
        """Evict a gang whole if it would fall below its minimum: half a gang would only hold its GPUs."""
        extended: list[EvictionStep] = []
        for step in victims:
            remaining = [t for t in step.gang.tasks if t.status in ACTIVE_STATUSES and t not in step.tasks]
            if remaining and step.gang.elasticity() == 0 and _had_minimum(step.gang):
                self._evict(remaining)
                step = replace(step, tasks=(*step.tasks, *remaining), is_whole_gang=True)
            extended.append(step)
        return extended

    def _swap_devices(self, old_places: dict[TaskState, Placement | None]) -> None:
        """If a victim returned to its node but to another GPU, swap devices with the pod that is pipelined to its old one."""
        session = self.session
        for t, old_place in old_places.items():
            if old_place is None:
                continue
            node, old_devices = old_place
            if t.node != node or t.devices == old_devices or not t.task.shape.gpus:
                continue
            wanted_devices = set(old_devices)
            others = [
                o
                for o in self._pipelined_tasks(node)
                if o is not t and o.task.shape.gpus and wanted_devices & set(o.devices)
            ]
            checkpoint = session.checkpoint()
            spare_devices = [d for d in t.devices if d not in wanted_devices]
            session.move_task(t, Status.PENDING, origin=t.origin)
            for o in others:
                kept_devices = [d for d in o.devices if d not in wanted_devices]
                taken = len(o.devices) - len(kept_devices)
                swapped, spare_devices = tuple(sorted(kept_devices + spare_devices[:taken])), spare_devices[taken:]
                session.move_task(o, Status.PIPELINED, node, swapped, origin=o.origin)
            state = session.nodes[node]
            if all(state.used_per_device[d] == state.releasing_per_device[d] for d in old_devices):
                session.move_task(t, Status.PIPELINED, node, old_devices, origin=t.origin)
            else:
                session.rollback(checkpoint)

    def _pipelined_tasks(self, node: str) -> list[TaskState]:
        """Tasks pipelined to the node since the search began."""
        moved = dict.fromkeys(entry[0] for entry in self.session.undo_log[self.start_checkpoint :])
        return [t for t in moved if t.status is Status.PIPELINED and t.node == node]


def _had_minimum(gang: GangState) -> bool:
    """Whether the gang had its minimum before this cycle."""
    return all(
        s.succeeded_count + sum(t.task.status in ACTIVE_STATUSES for t in s.tasks) >= s.minimum
        for s in gang.pod_sets.values()
    )
