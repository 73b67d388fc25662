"""Consolidation: move running pods closer together so that a waiting gang finds its room in one piece.

Nobody loses anything but time: every pod that is evicted has its new place in the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.scheduling.allocate import gate
from rowlock.scheduling.order import wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.protection import evictable
from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.solver import Search, Solver
from rowlock.scheduling.victims import Step, Victims
from rowlock.scheduling.world import GangState, TaskState, World


def worth_consolidating(world: World, asker: GangState) -> bool:
    """Is there enough room in the whole cluster, were it in one place?"""
    if world.settings.max_consolidated == 0 or not asker.gang.preemptible or asker.queue is None:
        return False
    cpu, _, gpus = world.need(wanted(asker))
    return world.free_gpu >= gpus if gpus else sum(s.cpu + s.back_cpu for s in world.order) >= cpu


def started_now(gang: GangState) -> bool:
    """This plan binds a pod of it. Moving the others as well would leave that one alone, below the gang's minimum."""
    return any(t.status is Status.ALLOCATED and t.task.status is Status.PENDING for t in gang.tasks)


def consolidate(world: World, placer: Placer, asker: GangState) -> bool:
    """Move others to make one piece of room for the asker; False changes nothing."""
    if not worth_consolidating(world, asker) or gate(asker, world.need(wanted(asker))) is not None:
        return False

    def accept(gang: GangState) -> bool:
        return evictable(gang) and gang is not asker and not started_now(gang)

    def validate(tasks: Sequence[TaskState], losers: Sequence[Step]) -> bool:
        return all(t.status not in (Status.RELEASING, Status.PENDING) for s in losers for t in s.tasks)

    victims = None if asker.active else world.shared.get("consolidate")
    if not isinstance(victims, Victims):
        victims = Victims(world, world.active_gangs(), accept, most_gangs=world.settings.max_consolidated)
        if not asker.active:
            world.shared["consolidate"] = victims
    return Solver(world, placer).solve(Search(asker, victims, validate))
