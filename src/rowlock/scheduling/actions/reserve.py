"""Reserves nodes for a large gang that has waited long, so that small jobs cannot overtake it for ever.

One gang per node pool has a reservation: the first by priority and age that is entitled to the resources, needs more than one GPU, and has
waited for `reserve_after`. The nodes that will be free soonest are *reserved*. From then on only pods are placed there (*backfilled*, as in
Slurm) that can be evicted again or that declare to end before the nodes become free. When only backfilled pods are in the way, they are
evicted. So the gang starts at the latest when the pods have ended that ran there before. KAI has no such feature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from rowlock.scheduling.actions.allocate import allocate_gang
from rowlock.scheduling.actions.pending_gangs import PendingGangs
from rowlock.scheduling.model.gang_state import (
    ACTIVE_STATUSES,
    ALLOCATED_STATUSES,
    HOLDING_STATUSES,
    GangState,
    TaskState,
)
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.resources import ZERO, add, is_within, subtract
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import NodeReservation, Status
from rowlock.scheduling.policy.order import gang_key, tasks_to_allocate
from rowlock.scheduling.policy.placement import Placer, find_devices, fits_resources, obstacle
from rowlock.scheduling.policy.protection import (
    is_evictable,
    remaining_runtime,
    resolve_preempt_min_runtime,
    resolve_reclaim_min_runtime,
)
from rowlock.scheduling.policy.topology import label_value


def update_node_reservations(session: Session, placer: Placer, pending_gangs: PendingGangs) -> None:
    """Keep, drop or choose node reservations. Called once per cycle, after fair shares are computed and before any gang is placed."""
    if "reserve" not in session.settings.actions or session.settings.reserve_after <= 0:
        session.set_node_reservations(())
        return
    session.set_node_reservations(
        tuple(
            reservation
            for reservation in session.node_reservations
            if _is_still_valid(session, pending_gangs, reservation)
        )
    )
    _reserve_quota(session)
    _add_reservations(session, placer, pending_gangs)
    session.reserved_free_at = {
        reservation.gang: _nodes_free_at(session, reservation) for reservation in session.node_reservations
    }
    _reserve_quota(session)


def _reserve_quota(session: Session) -> None:
    """Reserve quota in the gang's queues, too: other gangs of these queues could otherwise use up their limit or quota."""
    for q in session.queues.values():
        q.quota_reservations = ()
    for reservation in session.node_reservations:
        state = session.gangs.get(reservation.gang)
        if state is None or state.queue is None:
            continue
        needed = session.total_cost(tasks_to_allocate(state))
        for q in state.queue.path:
            q.quota_reservations = (*q.quota_reservations, (state.gang.key, needed, not state.gang.preemptible))


def _is_still_valid(session: Session, pending_gangs: PendingGangs, reservation: NodeReservation) -> bool:
    """Whether the gang still waits, is still entitled, and its nodes still exist and suit it."""
    state = session.gangs.get(reservation.gang)
    if state is None or reservation.gang not in pending_gangs.positions or not _is_entitled(session, state):
        return False
    if not _is_within_fair_share(session, state, reservation.nodes):
        return False
    shape = tasks_to_allocate(state)[0].task.shape
    return all(n in session.nodes and not obstacle(shape, session.nodes[n].node) for n in reservation.nodes)


def _is_entitled(session: Session, state: GangState) -> bool:
    """Whether the gang is below its minimum, needs more than one GPU, and fits whole into the bounds of its queues."""
    tasks = tasks_to_allocate(state)
    if not tasks or all(s.shortfall <= 0 for s in state.pod_sets.values()) or state.queue is None:
        return False
    if len(tasks) == 1 and tasks[0].task.shape.device_count <= 1:
        return False
    need = session.total_cost(tasks)
    bounds = [b for q in state.queue.path for b in (q.fair_share, q.queue.limit)]
    if not state.gang.preemptible:
        bounds += [q.queue.quota for q in state.queue.path]
    return all(is_within(need, b) for b in bounds)


def _is_within_fair_share(session: Session, state: GangState, nodes: Iterable[str]) -> bool:
    """Whether its queues stay within their fair share with it, once their own pods have left those nodes. Otherwise other queues would
    reclaim the nodes at once."""
    needed, reserved = session.total_cost(tasks_to_allocate(state)), set(nodes)
    for q in state.queue.path if state.queue is not None else ():
        queue_gangs = (g for g in session.active_gangs() if g.queue is not None and q in g.queue.path)
        leaving_tasks = (t for g in queue_gangs for t in g.tasks if t.status in ACTIVE_STATUSES and t.node in reserved)
        leaving = ZERO
        for t in leaving_tasks:
            leaving = add(leaving, session.resource_cost(t.task.shape, session.nodes.get(t.node)))
        if not is_within(add(subtract(q.allocated, leaving), needed), q.fair_share):
            return False
    return True


def waiting_since(state: GangState) -> float:
    """Since when the gang waits (seconds since the epoch): its creation, or its last start if it was evicted."""
    return max(state.gang.created, state.gang.started)


def _add_reservations(session: Session, placer: Placer, pending_gangs: PendingGangs) -> None:
    """Reserve nodes for one gang in every pool without a reservation."""
    candidates = [
        group[0]
        for group in pending_gangs.ready_groups()
        if session.now - waiting_since(group[0]) >= session.settings.reserve_after and _is_entitled(session, group[0])
    ]
    for state in sorted(candidates, key=gang_key):
        if session.node_reservation_in(state.pool) is not None:
            continue
        checkpoint = session.checkpoint()
        fits_now = allocate_gang(session, placer, state) is None
        session.rollback(checkpoint)
        if fits_now:
            continue
        nodes = _choose_nodes(session, state)
        if nodes and _is_within_fair_share(session, state, nodes):
            session.set_node_reservations(
                (*session.node_reservations, NodeReservation(state.gang.key, nodes, session.now, state.pool))
            )


@dataclass(slots=True)
class NodeDrain:
    """When a node will be empty. `unending_pods`: number of pods that cannot be evicted and declare no end."""

    state: NodeState
    empty_at: float = 0.0
    unending_pods: int = 0


def _choose_nodes(session: Session, state: GangState) -> tuple[str, ...]:
    """The nodes that are empty soonest and would, when empty, hold the gang; () if there are none."""
    drains = [NodeDrain(s) for s in session.ordered_nodes]
    for gang in session.active_gangs():
        ends_at = gang.gang.started + gang.gang.lasts if gang.gang.lasts else inf
        for t in gang.tasks:
            if t.status in ALLOCATED_STATUSES and (node := session.nodes.get(t.node)) is not None:
                drain = drains[node.index]
                drain.empty_at = max(drain.empty_at, ends_at)
                drain.unending_pods += not gang.gang.preemptible and ends_at == inf
    drains.sort(key=lambda d: (d.unending_pods > 0, d.empty_at, -d.state.idle_gpu(), -d.state.idle_cpu, d.state.index))
    label = state.gang.required
    if not label:
        return _fill_nodes(session, state, drains)
    values = dict.fromkeys(v for d in drains if (v := label_value(d.state.node, label)) is not None)
    node_sets = (
        _fill_nodes(session, state, [d for d in drains if label_value(d.state.node, label) == v]) for v in values
    )
    return next(filter(None, node_sets), ())


def _fill_nodes(session: Session, state: GangState, drains: Iterable[NodeDrain]) -> tuple[str, ...]:
    """Place the gang on empty copies of the nodes, in this order. Returns the names of the nodes used; () if it does not fit."""
    tasks = sorted(tasks_to_allocate(state), key=lambda t: -t.task.shape.device_count)
    chosen: list[str] = []
    foreign_tasks = [
        t for g in session.gangs.values() if g.gang.foreign for t in g.tasks if t.status in HOLDING_STATUSES
    ]
    for drain in drains:
        if not tasks:
            break
        empty_node = NodeState(drain.state.node, 0)
        for t in foreign_tasks:
            if t.node == empty_node.node.name:
                empty_node.occupy(t.task.shape, t.devices, 1)
        unplaced = [t for t in tasks if not _try_occupy(empty_node, t)]
        if len(unplaced) < len(tasks):
            chosen.append(empty_node.node.name)
            tasks = unplaced
    return () if tasks else tuple(chosen)


def _try_occupy(empty_node: NodeState, task: TaskState) -> bool:
    """Place the task on the empty copy of a node; False if it does not fit."""
    shape = task.task.shape
    if obstacle(shape, empty_node.node) or not fits_resources(empty_node, shape, with_releasing=False):
        return False
    devices = find_devices(empty_node, shape, with_releasing=False, spread=False)
    if devices is None:
        return False
    empty_node.occupy(shape, devices, 1)
    return True


def _nodes_free_at(session: Session, reservation: NodeReservation) -> float | None:
    """When all pods on the nodes will have ended that are not backfilled; None if one of them declares no end."""
    latest, reserved = session.now, set(reservation.nodes)
    for gang in session.active_gangs():
        if (
            gang.gang.key == reservation.gang
            or _is_backfilled(gang, reservation)
            or not any(t.node in reserved for t in gang.tasks)
        ):
            continue
        if not gang.gang.lasts:
            return None
        latest = max(latest, gang.gang.started + gang.gang.lasts)
    return latest


def _is_backfilled(gang: GangState, reservation: NodeReservation) -> bool:
    """Whether the gang is preemptible and started after the nodes were reserved. (Start times are whole seconds.)"""
    return gang.gang.preemptible and (gang.gang.started or gang.gang.created) >= int(reservation.since)


def evict_backfilled(
    session: Session, placer: Placer, reservation: NodeReservation
) -> tuple[GangState | None, float | None]:
    """Evict backfilled pods if nothing else is in the way. Returns (the gang, now pipelined, or None; seconds after which to try again, or
    None if waiting does not help)."""
    state = session.gangs.get(reservation.gang)
    if state is None or any(s.active_count > s.allocated_count for s in state.pod_sets.values()):
        return None, None
    reserved = set(reservation.nodes)
    backfilled = [
        g
        for g in session.active_gangs()
        if is_evictable(g)
        and not g.has_victims
        and g is not state
        and _is_backfilled(g, reservation)
        and any(t.node in reserved for t in g.tasks)
    ]
    delays = [w for g in backfilled if (w := _protected_seconds(session, state, g)) > 0]
    backfilled = [g for g in backfilled if _protected_seconds(session, state, g) <= 0]
    backfilled.sort(key=lambda g: (g.gang.priority, -g.gang.started, g.gang.key))
    if not backfilled or not _evict_fewest(session, placer, state, backfilled):
        return None, min(delays, default=None)
    return state, None


def _evict_fewest(session: Session, placer: Placer, state: GangState, backfilled: list[GangState]) -> bool:
    """Evict the fewest backfilled gangs, in this order, that let the gang be pipelined; True on success."""
    checkpoint = session.checkpoint()
    low, high = 0, len(backfilled)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _try_evict(session, placer, state, backfilled[:middle]) else (middle + 1, high)
        session.rollback(checkpoint)
    if _try_evict(session, placer, state, backfilled[:low]):
        return True
    session.rollback(checkpoint)
    return False


def _try_evict(session: Session, placer: Placer, state: GangState, backfilled: Iterable[GangState]) -> bool:
    for victim in backfilled:
        for t in list(victim.tasks):
            if t.status in (Status.BOUND, Status.RUNNING):
                session.move_task(t, Status.RELEASING, t.node, t.devices)
            elif t.status in (Status.ALLOCATED, Status.PIPELINED) and t.origin is None:
                session.move_task(t, Status.PENDING)
    if allocate_gang(session, placer, state) is not None:
        return False
    return state.queue is not None and all(is_within(q.allocated, q.fair_share) for q in state.queue.path)


def _protected_seconds(session: Session, state: GangState, victim: GangState) -> float:
    """Seconds of min-runtime that still protect the victim."""
    in_same_queue = victim.queue is state.queue
    return remaining_runtime(
        session,
        victim,
        resolve_preempt_min_runtime(victim) if in_same_queue else resolve_reclaim_min_runtime(state, victim),
    )


def is_blocked_by_reservation(session: Session, state: GangState) -> bool:
    """Whether the gang's first pod would fit now on a node that is reserved for another gang."""
    reservation = session.node_reservation_in(state.pool)
    tasks = tasks_to_allocate(state)
    if reservation is None or reservation.gang == state.gang.key or state.gang.preemptible or not tasks:
        return False
    shape = tasks[0].task.shape
    reserved_nodes = [session.nodes[n] for n in reservation.nodes if n in session.nodes]
    return any(
        not obstacle(shape, s.node)
        and fits_resources(s, shape, with_releasing=False)
        and find_devices(s, shape, with_releasing=False, spread=False) is not None
        for s in reserved_nodes
    )
