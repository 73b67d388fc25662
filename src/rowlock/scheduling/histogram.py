"""How the nodes stand against one shape: counts per obstacle, in the kube-scheduler's words, and the room that is left.

`verdict` is the sentence that kubectl users know: "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had
untolerated taint(s). no new claims to deallocate, preemption: ...".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from rowlock.scheduling.amounts import WHOLE
from rowlock.scheduling.placement import cards, could_hold, fits, obstacle
from rowlock.scheduling.room import NodeState
from rowlock.scheduling.snapshot import Node, Shape
from rowlock.scheduling.world import World


@dataclass(slots=True)
class Histogram:
    """`obstacles` counts nodes per reason (a node may have several); `usable` are nodes that could ever hold one."""

    nodes: int = 0
    obstacles: Counter[str] = field(default_factory=Counter)
    usable: int = 0
    barred: int = 0
    """Nodes that are out whatever is free: taints, selectors, cordons."""
    free_gpus: int = 0
    """Whole idle GPUs on nodes that are not barred, less those that are promised."""
    best_free: int = 0
    best_node: str = ""
    biggest: int = 0
    """GPUs of the largest node that is not barred."""
    most_card: int = 0
    """MiB of the largest card on a node that is not barred."""
    most_cpu: int = 0
    most_memory: int = 0
    shut: Node | None = None
    """The first node that could hold one if it took pods."""


def missing(state: NodeState, shape: Shape) -> list[str]:
    """What the node lacks now."""
    found = []
    if state.cpu < shape.cpu:
        found.append("Insufficient cpu")
    if state.memory < shape.memory:
        found.append("Insufficient memory")
    if state.pods < 1:
        found.append("Too many pods")
    found += [f"Insufficient {name}" for name, value in shape.extras if state.extras.get(name, 0) < value]
    if shape.wants_gpu and cards(state, shape, later=False, spread=False) is None:
        found.append("Insufficient nvidia.com/gpu")
    return found or ([] if fits(state, shape, later=False) else ["Insufficient resources (promised to others)"])


def survey(world: World, shape: Shape) -> Histogram:
    found = Histogram(nodes=len(world.order))
    for state in world.order:
        barred = obstacle(shape, state.node)
        if barred:
            found.barred += 1
            found.obstacles[barred] += 1
            if found.shut is None and _only_shut(state.node, shape):
                found.shut = state.node
            continue
        found.obstacles.update(missing(state, shape))
        found.usable += could_hold(state.node, shape)
        free = sum(u == 0 and b == 0 for u, b in zip(state.used, state.back, strict=True))
        found.free_gpus += free
        found.biggest = max(found.biggest, state.node.gpus)
        found.most_card = max(found.most_card, state.node.gpu_memory if state.node.gpus else 0)
        found.most_cpu = max(found.most_cpu, state.node.cpu)
        found.most_memory = max(found.most_memory, state.node.memory)
        if free > found.best_free or not found.best_node:
            found.best_free, found.best_node = free, state.node.name
    return found


def _only_shut(node: Node, shape: Shape) -> bool:
    shut = (node.unschedulable or not node.ready) and not node.retired
    return shut and could_hold(node, shape) and not obstacle(shape, replace(node, unschedulable=False, ready=True))


def verdict(found: Histogram) -> str:
    """The kube-scheduler's message for a pod that fits nowhere."""
    if not found.nodes:
        return "no nodes available to schedule pods"
    n = found.nodes
    reasons = ", ".join(sorted(f"{count} {text}" for text, count in found.obstacles.items()))
    helpless = n - found.usable
    parts = []
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    if found.usable:
        parts.append(f"{found.usable} No preemption victims found for incoming pod")
    return (
        f"0/{n} nodes are available: {reasons}. no new claims to deallocate, "
        f"preemption: 0/{n} nodes are available: {', '.join(sorted(parts))}."
    )


def whole_gpus(hundredths: int) -> float:
    return hundredths / WHOLE
