"""Gangs that want their pods close together: all on nodes with the same value of a label (a rack, a block).

A *region* is one value of such a label. Tried are the regions of the preferred level, then those of the required one,
then, if nothing is required, the whole cluster; among regions that could hold the gang the one with the least free
room first, so that large pieces stay whole. A gang that runs grows only where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rowlock.scheduling.amounts import GPU
from rowlock.scheduling.placement import EVERYWHERE, Region
from rowlock.scheduling.room import NodeState
from rowlock.scheduling.snapshot import Node
from rowlock.scheduling.world import REAL, GangState, TaskState, World


def value(node: Node, label: str) -> str | None:
    return next((v for k, v in node.labels if k == label), None)


def regions(
    world: World, state: GangState, tasks: Iterable[TaskState], promised: Mapping[str, str]
) -> Iterator[Region]:
    """Where to try the gang, best first."""
    gang = state.gang
    need = world.need(tasks)[GPU]
    home = [world.nodes[t.node] for t in state.tasks if t.status in REAL and t.node in world.nodes]
    there = [world.nodes[n] for n in promised.values() if n in world.nodes]
    for label in dict.fromkeys(filter(None, (gang.preferred, gang.required))):
        first = [(label, v) for s in (*home, *there) if (v := value(s.node, label)) is not None]
        if home and label == gang.required:
            yield from first[:1]
            return
        yield from dict.fromkeys((*first, *_by_room(world.order, label, need)))
    if not gang.required:
        yield EVERYWHERE


def _by_room(nodes: Iterable[NodeState], label: str, need: int) -> Iterator[Region]:
    """The regions of a level that have enough GPUs free or coming back, the fullest first."""
    free: dict[str, int] = {}
    for s in nodes:
        if (v := value(s.node, label)) is not None and not s.node.unschedulable:
            free[v] = free.get(v, 0) + (s.free_gpu() if need else s.cpu + s.back_cpu)
    for v in sorted(free, key=lambda v: (free[v], v)):
        if free[v] >= need:
            yield label, v


def levels(world: World, label: str) -> int:
    """How many regions a level has; 0 = no node has that label."""
    return len({v for s in world.order if (v := value(s.node, label)) is not None})
