"""Gangs that want their pods close together: all on nodes with the same value of a label (a rack, a block).

A topology *domain* is one value of such a label. The domains of the preferred level are tried first, then those of the required one, then,
if nothing is required, the whole cluster. Among domains that could hold the gang the one with the least free resources comes first, so that
large ones stay free. A running gang grows only within its required domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rowlock.scheduling.model.gang_state import ALLOCATED_STATUSES, GangState, TaskState
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.resources import GPU
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Node
from rowlock.scheduling.policy.placement import WHOLE_CLUSTER, TopologyDomain


def label_value(node: Node, label: str) -> str | None:
    """The node's value of a label, None when it has no such label."""
    return next((v for k, v in node.labels if k == label), None)


def candidate_domains(
    session: Session, state: GangState, tasks: Iterable[TaskState], nominated_nodes: Mapping[str, str]
) -> Iterator[TopologyDomain]:
    """The domains in which to try the gang, best first."""
    gang = state.gang
    needed = session.total_cost(tasks)[GPU]
    current = [session.nodes[t.node] for t in state.tasks if t.status in ALLOCATED_STATUSES and t.node in session.nodes]
    nominated = [session.nodes[n] for n in nominated_nodes.values() if n in session.nodes]
    for label in dict.fromkeys(filter(None, (gang.preferred, gang.required))):
        first_domains = [(label, v) for s in (*current, *nominated) if (v := label_value(s.node, label)) is not None]
        if current and label == gang.required:
            yield from first_domains[:1]
            return
        yield from dict.fromkeys((*first_domains, *_domains_by_free_gpus(session.ordered_nodes, label, needed)))
    if not gang.required:
        yield WHOLE_CLUSTER


def _domains_by_free_gpus(nodes: Iterable[NodeState], label: str, needed: float) -> Iterator[TopologyDomain]:
    """The domains of a level with enough GPUs free or being released, the fullest first."""
    free: dict[str, float] = {}
    for s in nodes:
        if (v := label_value(s.node, label)) is not None and not s.node.unschedulable:
            free[v] = free.get(v, 0) + (s.free_gpu() if needed else s.idle_cpu + s.releasing_cpu)
    for v in sorted(free, key=lambda v: (free[v], v)):
        if free[v] >= needed:
            yield label, v
