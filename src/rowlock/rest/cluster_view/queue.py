"""The queue of waiting workloads, and which changes would let one of them start.

The order is the planner's, over all waiting workloads; callers see the positions of the workloads that they may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rowlock import objects
from rowlock.rest.call import RestCall
from rowlock.rest.workloads import find_workload
from rowlock.scheduling.explain.what_if import DryRunPlanner
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Snapshot
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.policy import fairshare
from rowlock.scheduling.policy.order import JobsOrderByQueues
from rowlock.workloads import runai_json

_FRESH_S = 1.0
"""Seconds for which a computed order is reused."""
_NO_SCHEDULER = "This cluster runs without rowlock's scheduler: nobody here knows the order, or what would help."


class WaitingOrder:
    """The uids of waiting jobs, computed once for concurrent callers."""

    def __init__(self, take_snapshot: Callable[[], Snapshot] | None) -> None:
        self._take_snapshot = take_snapshot
        self._lock = asyncio.Lock()
        self._known: tuple[float, list[str]] | None = None

    async def job_uids(self) -> list[str] | None:
        """The uids in order, "" for a gang without a job; None when our scheduler does not run."""
        if self._take_snapshot is None:
            return None
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._known is None or now - self._known[0] >= _FRESH_S:
                snapshot = self._take_snapshot()
                gangs = await asyncio.to_thread(waiting_gangs, snapshot)
                self._known = (now, [gang.owner[3] for gang in gangs])
            return self._known[1]


async def index(call: RestCall) -> Any:
    """GET /scheduler/queue: the workloads that wait for nodes and that the caller may see, in order; `position` counts
    all from 1."""
    call.validate_query()
    cache, order = call.context.cache, await call.context.waiting_order()
    visible = {row.uid for row in cache.rows()}
    waiting = [
        _waiting_json(call, uid, position)
        for position, uid in enumerate(order or (), 1)
        if uid in visible and cache.workload(uid)
    ]
    return {"isOrdered": order is not None, "waiting": waiting, "total": len(order or ())}


def _waiting_json(call: RestCall, uid: str, position: int) -> dict[str, Any]:
    workload = call.context.cache.workload(uid)
    assert workload is not None, "it was there a moment ago, in the same turn"
    return {
        "position": position,
        "workloadId": runai_json.workload_id(workload.job),
        "name": objects.name(workload.job),
        "projectName": workload.project.name,
        "hint": str(objects.dig(workload.group or {}, "status.explanation.hint", "") or ""),
    }


async def what_if(call: RestCall) -> Any:
    """GET /workloads/{id}/what-if: whether the workload would start now, and if not, which changes would start it (the
    planner tries each). `verdict` is "" for a workload that does not wait for a node. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    take_snapshot = call.context.take_snapshot
    if take_snapshot is None:
        return {"verdict": "", "message": _NO_SCHEDULER, "hint": "", "changes": []}
    async with call.context.planning.take(call.user):
        visible, snapshot = frozenset(call.context.cache.projects()), take_snapshot()
        return await asyncio.to_thread(
            try_changes, snapshot, objects.uid(workload.job), objects.name(workload.job), visible
        )


def try_changes(snapshot: Snapshot, uid: str, name: str, visible: frozenset[str]) -> dict[str, Any]:
    """Let the planner try changes for the job's gang. `visible`: namespaces whose workloads the answer may name."""
    gang = next((gang for gang in snapshot.gangs if gang.owner[3] == uid and _is_waiting(gang)), None)
    if gang is None:
        return {"verdict": "", "message": f"{name} waits for no node.", "hint": "", "changes": []}
    (outcome,) = DryRunPlanner(snapshot).dry_run([gang])
    hint = str(outcome.record.get("hint") or "")
    message = outcome.message
    if any(one.namespace not in visible for one in outcome.evicted):
        message = f"{name} would start when pods of other projects have made room."
    return {"verdict": outcome.verdict, "message": message, "hint": hint, "changes": list(outcome.changes)}


def _is_waiting(gang: Gang) -> bool:
    return any(task.status == "Pending" for task in gang.tasks)


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
