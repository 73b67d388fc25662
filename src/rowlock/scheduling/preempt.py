"""Preempt: inside one queue, a higher priority takes from strictly lower ones."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.scheduling.allocate import Reason, gate
from rowlock.scheduling.order import wanted
from rowlock.scheduling.placement import Placer
from rowlock.scheduling.protection import evictable, preempt_protected
from rowlock.scheduling.solver import Search, Solver
from rowlock.scheduling.victims import Step, Victims
from rowlock.scheduling.world import GangState, TaskState, World


def worth_preempting(world: World, asker: GangState) -> bool:
    """Is there anybody of lower priority in its queue?"""
    queue = asker.queue
    return queue is not None and any(priority < asker.gang.priority for priority in queue.priorities)


def preempt(world: World, placer: Placer, asker: GangState) -> bool:
    """Evict lower priorities of the same queue for the asker; False changes nothing."""
    queue = asker.queue
    if queue is None:
        return False
    lower = [g for g in queue.running.values() if g.gang.priority < asker.gang.priority]
    refused = gate(asker, world.need(wanted(asker)))
    if not lower or (refused is not None and refused.reason is Reason.OVER_QUOTA):
        return False

    def accept(gang: GangState) -> bool:
        # What other queues give up now goes to whom it was given for: a larger gang of its queue may not be entitled to it.
        return evictable(gang) and not gang.served and not preempt_protected(world, gang)

    def validate(tasks: Sequence[TaskState], losers: Sequence[Step]) -> bool:
        return True

    return Solver(world, placer).solve(Search(asker, Victims(world, lower, accept), validate))
