"""In which order gangs that wait are considered: the real order of queues and gangs, of a snapshot as it stands."""

from __future__ import annotations

from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Snapshot
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.policy import fairshare
from rowlock.scheduling.policy.order import JobsOrderByQueues


def waiting_gangs(snapshot: Snapshot) -> list[Gang]:
    """The gangs with pods to place, as one cycle would take them up when none of them started: first those that nodes were promised
    to, the longest first; then as the queues compete. Those that cannot be tried (no queue, no pods yet) are not among them."""
    session = open_session(snapshot)
    pending = Planner(session).pending_gangs
    fairshare.set_fair_shares(session)
    promised = sorted(session.reservations.values(), key=lambda one: (one.since, one.gang))
    keys = dict.fromkeys(one.gang for one in promised if one.gang in pending.positions)
    order = JobsOrderByQueues(session, pending.ready_groups())
    while (state := order.pop_gang()) is not None:
        keys.setdefault(state.gang.key)
    return [session.gangs[key].gang for key in keys]
