"""Evicts all pods of broken gangs, so that they restart as a whole (KAI's stalegangeviction).

A gang is broken when one of its nodes has been gone or not ready for some seconds, or when it runs with fewer pods than its minimum for
longer than a grace period.
"""

from __future__ import annotations

from math import inf

from rowlock.scheduling.model.gang_state import ACTIVE_STATUSES, GangState
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Status


def is_below_minimum(state: GangState) -> bool:
    """Whether the gang has active pods, none of its pods has succeeded, and a pod set is below its minimum."""
    if not state.active_count or any(s.succeeded_count for s in state.pod_sets.values()):
        return False
    return any(s.active_count < s.minimum for s in state.pod_sets.values())


def seconds_until_stale(session: Session, state: GangState) -> float | None:
    """Seconds until the gang must be evicted (0 = now); None if it is not below its minimum or the grace period is endless."""
    grace = session.settings.stale_grace if state.gang.grace is None else state.gang.grace
    if grace < 0 or state.gang.foreign or not is_below_minimum(state):
        return None
    since = state.gang.stale or session.now
    return max(0.0, since + grace - session.now)


def evict_stale_gangs(session: Session) -> list[GangState]:
    """Evict all stale gangs whose grace period is over. Returns them."""
    evicted = []
    for state in list(session.below_minimum_gangs.values()):
        if seconds_until_stale(session, state) == 0:
            _evict(session, state)
            evicted.append(state)
    return evicted


def seconds_until_lost(session: Session, state: GangState) -> float:
    """Seconds until a gang with pods on a vanished or unready node must be evicted (0 = now); inf if the plan has already moved those
    pods."""
    lost_nodes = {t.node for t in state.tasks if t.node and session.is_node_lost(t.node)}
    return min((max(0.0, _node_given_up_at(session, node) - session.now) for node in lost_nodes), default=inf)


def _node_given_up_at(session: Session, node: str) -> float:
    """When the grace period of the lost node ends, in seconds since the epoch."""
    grace = session.settings.unready_grace if node in session.nodes else session.settings.node_grace
    return session.lost_nodes.get(node, session.now) + grace


def evict_lost_gangs(session: Session) -> list[GangState]:
    """Evict the gangs on lost nodes: their other pods wait for a rank that will not answer. Returns them."""
    evicted = []
    for state in list(session.gangs_on_lost_nodes.values()):
        if not state.gang.bare and not state.gang.foreign and seconds_until_lost(session, state) == 0:
            _evict(session, state)
            evicted.append(state)
    return evicted


def _evict(session: Session, state: GangState) -> None:
    for t in list(state.tasks):
        if t.status in ACTIVE_STATUSES and t.status is not Status.PIPELINED:
            session.move_task(t, Status.RELEASING, t.node, t.devices, origin=t.origin)
