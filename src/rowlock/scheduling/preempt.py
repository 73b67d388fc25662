"""Preempt: inside one queue, a higher priority takes from strictly lower ones."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.scheduling.allocate import gate
from rowlock.scheduling.order import wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.protection import evictable, preempt_protected
from rowlock.scheduling.solver import Search, Solver
from rowlock.scheduling.victims import Step, Victims
from rowlock.scheduling.world import GangState, TaskState, World


def preempt(world: World, placer: Placer, asker: GangState) -> bool:
    """Evict lower priorities of the same queue for the asker; False changes nothing."""
    queue = asker.queue
    if queue is None:
        return False
    lower = [g for g in queue.running.values() if g.gang.priority < asker.gang.priority]
    if not lower:
        return False
    refused = gate(asker, world.need(wanted(asker)))
    if refused is not None and not asker.gang.preemptible and refused.reason == "NonPreemptibleOverQuota":
        return False

    def accept(gang: GangState) -> bool:
        return evictable(gang) and not preempt_protected(world, gang)

    def validate(tasks: Sequence[TaskState], losers: Sequence[Step]) -> bool:
        return True

    return Solver(world, placer).solve(Search(asker, Victims(world, lower, accept), validate))
