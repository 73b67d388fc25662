"""The order in which pending gangs of a snapshot are considered, by the planner's own order of queues and gangs."""

from __future__ import annotations

from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Snapshot
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.policy import fairshare
from rowlock.scheduling.policy.order import JobsOrderByQueues


def waiting_gangs(snapshot: Snapshot) -> list[Gang]:
    """The pending gangs in the order in which a cycle would try them if none started: first the pipelined ones, the oldest first, then in
    the order in which queues compete. Gangs that cannot be tried (no queue, missing pods) are left out."""
    session = open_session(snapshot)
    pending = Planner(session).pending_gangs
    fairshare.set_fair_shares(session)
    promised = sorted(session.reservations.values(), key=lambda one: (one.since, one.gang))
    keys = dict.fromkeys(one.gang for one in promised if one.gang in pending.positions)
    order = JobsOrderByQueues(session, pending.ready_groups())
    while (state := order.pop_gang()) is not None:
        keys.setdefault(state.gang.key)
    return [session.gangs[key].gang for key in keys]
