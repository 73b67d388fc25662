"""Messages about nodes that are reserved for a gang, and about topology requirements."""

from __future__ import annotations

from typing import Any

from rowlock.objects import timestamp
from rowlock.scheduling.actions.allocate import Failure
from rowlock.scheduling.model.gang_state import GangState
from rowlock.scheduling.model.resources import GPU, WHOLE_GPU, format_amount, format_gpus
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Node, NodeReservation
from rowlock.scheduling.policy.order import tasks_to_allocate
from rowlock.scheduling.policy.topology import label_value

SentenceAndHint = tuple[str, str]
"""(message, hint: what change would let the gang start)."""


def name_for(session: Session, key: str, namespace: str) -> str:
    """A gang's name for readers of a namespace; for gangs of other namespaces only their queue is shown."""
    state = session.gangs.get(key)
    if key.partition("/")[0] == namespace:
        return f"workload {state.gang.display_name if state is not None else key}"
    queue = state.gang.queue if state is not None else ""
    return f"a workload of queue {queue}" if queue else "a workload of another project"


def _nodes_are(count: int) -> str:
    return "1 node is" if count == 1 else f"{count} nodes are"


def closed_node_reason(node: Node) -> str:
    """Why a node takes no pods and, for a cordon, the command that lifts it."""
    return (
        f"is cordoned (`kubectl uncordon {node.name}`)"
        if node.unschedulable
        else "is not ready (its kubelet is silent)"
    )


def _starts_when(session: Session, reservation: NodeReservation) -> str:
    free_at = session.reserved_free_at.get(reservation.gang)
    if free_at is None:
        return "when those who run there have ended"
    if free_at <= session.now:
        return "as soon as there is room for all of it"
    return f"at {timestamp(free_at)} at the latest"


def reserved_sentence(session: Session, state: GangState, failure: Failure) -> SentenceAndHint:
    """For a gang that must not use nodes or queue capacity reserved for another gang."""
    reservation = session.node_reservation_in(state.pool)
    if failure.shape is None and (q := session.queues.get(failure.queue)) is not None:
        keys = [key for key, *_ in q.quota_reservations if key != state.gang.key]
        reservation = next((m for m in session.node_reservations if m.gang in keys), reservation)
    if reservation is None:
        return "Reserved: the room is kept for another gang.", "wait"
    keeper = name_for(session, reservation.gang, state.gang.namespace).removeprefix("workload ")
    hint = "submit it as preemptible, or declare how long it runs (annotation rowlock.dev/max-runtime: 30m)"
    if failure.shape is None:
        reserved_quota = f"what {failure.queue} may still hold is kept for {keeper}"
        return (
            f"Reserved: {reserved_quota}, which waits since {timestamp(reservation.since)} for its nodes.",
            "wait until it has started",
        )
    return (
        f"Reserved: {_nodes_are(len(reservation.nodes))} kept for {keeper}, which starts {_starts_when(session, reservation)}.",
        hint,
    )


def reservation_note(session: Session, state: GangState) -> tuple[str, dict[str, Any]]:
    """For a gang with reserved nodes: (addition to its message, addition to its record); ("", {}) without a reservation."""
    reservation = next((m for m in session.node_reservations if m.gang == state.gang.key), None)
    if reservation is None:
        return "", {}
    record: dict[str, Any] = {"nodes": list(reservation.nodes), "since": timestamp(reservation.since)}
    free_at = session.reserved_free_at.get(reservation.gang)
    if free_at is not None and free_at > session.now:
        record["opens"] = timestamp(free_at)
    return f" {_nodes_are(len(reservation.nodes))} kept for it: it starts {_starts_when(session, reservation)}.", record


def domain_capacities(session: Session, label: str) -> dict[str, int]:
    """The GPUs of each topology domain, in hundredths of a GPU."""
    capacities: dict[str, int] = {}
    for s in session.ordered_nodes:
        if (v := label_value(s.node, label)) is not None:
            capacities[v] = capacities.get(v, 0) + s.node.gpus * WHOLE_GPU
    return capacities


def is_too_large_for_any_domain(session: Session, state: GangState) -> bool:
    """Whether the gang requires one topology domain and none has enough GPUs even when empty."""
    label = state.gang.required
    if not label:
        return False
    return session.total_cost(tasks_to_allocate(state))[GPU] > max(
        domain_capacities(session, label).values(), default=-1
    )


def topology_sentence(session: Session, state: GangState, failure: Failure) -> SentenceAndHint:
    """Why the gang does not fit into any one topology domain, and what to do."""
    label, capacities = state.gang.required, domain_capacities(session, state.gang.required)
    count = len(tasks_to_allocate(state))
    if not capacities:
        return (
            f"TopologyUnsatisfied: its pods must be on nodes with the same label {label}, but no node has that label.",
            f"label the nodes (kubectl label node NODE {label}=VALUE), or require another level",
        )
    needed, largest = (
        session.total_cost(tasks_to_allocate(state))[GPU],
        max(capacities, key=lambda v: (capacities[v], v)),
    )
    if needed > capacities[largest]:
        return (
            f"TopologyUnsatisfied: its {count} pods need {format_amount(GPU, needed)} with the same {label}, "
            f"but the largest, {largest}, has {format_gpus(capacities[largest])}.",
            f"ask for {format_amount(GPU, capacities[largest])} or less in all, or prefer {label} instead of requiring it",
        )
    return (
        f"TopologyUnsatisfied: {failure.pods_fit} of {count} pods fit now on nodes with the same {label} "
        f"({len(capacities)} of them); elsewhere there would be room for all.",
        f"wait, or prefer {label} instead of requiring it (kai.scheduler/topology-preferred-placement)",
    )
