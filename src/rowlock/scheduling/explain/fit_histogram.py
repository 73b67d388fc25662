"""Why nodes do not fit one shape: counts per obstacle, in kube-scheduler's words, and the free resources.

`unschedulable_message` is the message that kubectl users know: "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had
untolerated taint(s). no new claims to deallocate, preemption: ...".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from rowlock.scheduling.model.host_ports import NO_FREE_PORTS, is_port, unlisted_amount
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.resources import portion_memory
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Node, Shape
from rowlock.scheduling.policy.placement import could_hold, find_devices, fits_resources, free_portion, obstacle

_NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that kube-controller-manager puts on a node while it is not ready."""


@dataclass(slots=True)
class FitHistogram:
    """`obstacles` counts nodes per reason (a node may have several); `usable_nodes` counts nodes that could hold one when empty."""

    nodes: int = 0
    obstacles: Counter[str] = field(default_factory=Counter)
    usable_nodes: int = 0
    excluded_nodes: int = 0
    """Number of nodes excluded whatever is free: by taints, selectors, cordons."""
    free_gpus: int = 0
    """Whole idle GPUs on nodes that are not excluded, without those that pipelined pods take."""
    best_free_gpus: int = 0
    best_node: str = ""
    most_gpus: int = 0
    """GPUs of the largest node that is not excluded."""
    most_gpu_memory: int = 0
    """MiB of the largest GPU on a node that is not excluded."""
    most_cpu: int = 0
    most_memory: int = 0
    free_pods: int = 0
    """Number of further pods that nodes that are not excluded may hold by their pod limit."""
    best_share: float = 0
    """For a shape that shares GPUs: the largest share free on enough GPUs of one node, in MiB or hundredths as requested."""
    best_share_node: str = ""
    closed_node: Node | None = None
    """The first node that could hold a pod of the shape if it took pods."""


def missing_resources(state: NodeState, shape: Shape) -> list[str]:
    """The resources that the node lacks now for the shape, in kube-scheduler's words; [] if it fits."""
    insufficient = []
    if state.idle_cpu < shape.cpu:
        insufficient.append("Insufficient cpu")
    if state.idle_memory < shape.memory:
        insufficient.append("Insufficient memory")
    if state.idle_pods < 1:
        insufficient.append("Too many pods")
    lacking = [n for n, value in shape.extras if state.idle_extras.get(n, unlisted_amount(n)) < value]
    insufficient += [f"Insufficient {name}" for name in lacking if not is_port(name)]
    insufficient += [NO_FREE_PORTS] if any(map(is_port, lacking)) else []
    if shape.wants_gpu and find_devices(state, shape, with_releasing=False, spread=False) is None:
        insufficient.append("Insufficient nvidia.com/gpu")
    return insufficient or (
        [] if fits_resources(state, shape, with_releasing=False) else ["Insufficient resources (promised to others)"]
    )


def build_histogram(session: Session, shape: Shape) -> FitHistogram:
    """Count, for one shape, the nodes that are excluded (and why) and those that lack something now (and what)."""
    histogram = FitHistogram(nodes=len(session.ordered_nodes))
    for state in session.ordered_nodes:
        exclusion = obstacle(shape, state.node)
        if exclusion:
            histogram.excluded_nodes += 1
            histogram.obstacles[exclusion] += 1
            if histogram.closed_node is None and _is_only_closed(state.node, shape):
                histogram.closed_node = state.node
            continue
        histogram.obstacles.update(missing_resources(state, shape))
        histogram.usable_nodes += could_hold(state.node, shape)
        histogram.free_pods += max(0, state.idle_pods)
        free = sum(u == 0 and b == 0 for u, b in zip(state.used_per_device, state.releasing_per_device, strict=True))
        histogram.free_gpus += free
        histogram.most_gpus = max(histogram.most_gpus, state.node.gpus)
        histogram.most_gpu_memory = max(histogram.most_gpu_memory, state.node.gpu_memory if state.node.gpus else 0)
        histogram.most_cpu = max(histogram.most_cpu, state.node.cpu)
        histogram.most_memory = max(histogram.most_memory, state.node.memory)
        share = _free_share(state, shape)
        if share > histogram.best_share:
            histogram.best_share, histogram.best_share_node = share, state.node.name
        if free > histogram.best_free_gpus or not histogram.best_node:
            histogram.best_free_gpus, histogram.best_node = free, state.node.name
    return histogram


def _free_share(state: NodeState, shape: Shape) -> float:
    """The largest share that fits the node's GPUs now, in the unit of the shape; 0 if the shape requests no share."""
    if not shape.is_fractional or shape.devices > state.node.gpus:
        return 0
    free = sorted((free_portion(state, d) for d in range(state.node.gpus)), reverse=True)[shape.devices - 1]
    return portion_memory(free, state.node.gpu_memory) if shape.gpu_memory else free


def _is_only_closed(node: Node, shape: Shape) -> bool:
    is_closed = (node.unschedulable or not node.ready) and not node.retired
    taints = tuple(taint for taint in node.taints if taint.key not in _NOT_READY_TAINTS)
    opened = replace(node, unschedulable=False, ready=True, taints=taints)
    return is_closed and could_hold(node, shape) and not obstacle(shape, opened)


def unschedulable_message(histogram: FitHistogram) -> str:
    """kube-scheduler's message for a pod that fits on no node."""
    if not histogram.nodes:
        return "no nodes available to schedule pods"
    total = histogram.nodes
    reasons = ", ".join(sorted(f"{count} {text}" for text, count in histogram.obstacles.items()))
    unusable = total - histogram.usable_nodes
    parts = []
    if unusable:
        parts.append(f"{unusable} Preemption is not helpful for scheduling")
    if histogram.usable_nodes:
        parts.append(f"{histogram.usable_nodes} No preemption victims found for incoming pod")
    return (
        f"0/{total} nodes are available: {reasons}. no new claims to deallocate, "
        f"preemption: 0/{total} nodes are available: {', '.join(sorted(parts))}."
    )
