"""`POST /api/v1/scheduler/queue/move`: try a waiting workload before or after others of its project and priority.

The order is an annotation of the project's Queue, so the right to change queues is needed, also with kubectl, and the order survives the
server. It has the uids of jobs: a job that has ended leaves nothing behind for the next one of its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rowlock import kinds, objects
from rowlock.answers import cluster as answers
from rowlock.api import WriteOptions
from rowlock.errors import BadRequest, Conflict
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.cluster_view.queue import waiting_gangs
from rowlock.scheduling.model.from_objects import QUEUE_ORDER_ANNOTATION
from rowlock.scheduling.model.snapshot import Gang, Snapshot
from rowlock.workloads.body_fields import BodyErrors, Fields

_OPTIONS = WriteOptions(manager="rowlock")
_TRIES = 5
_MOST_PLACED = 2_000
"""Jobs that a queue's own order may have: an annotation of 74 KB."""
_PLACES = ("first", "last")
_SHOWN_WITHIN = 10.0
"""Seconds that a move waits for the order to be shown."""


async def move(call: RestCall) -> answers.MovedGang:
    """POST /scheduler/queue/move: move the workload `workloadId` to the `place` "first" or "last", or `before` or `after` the workload with that id. The answer has the
    names of the waiting workloads of this project and priority, in their new order. Raises BadRequest, Conflict."""
    call.validate_query()
    body, errors = await call.json(), BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("workloadId", "place", "before", "after")
    moved_id, place, before, after = (top.text(name) for name in ("workloadId", "place", "before", "after"))
    if not moved_id:
        top.add_error("workloadId", "required", "is the id of the workload to move.")
    if sum(map(bool, (place, before, after))) != 1:
        top.add_error("place", "required", "give one of place, before and after.")
    elif place and place not in _PLACES:
        top.add_error("place", "options", "may be first or last.")
    errors.raise_if_any()
    take_snapshot = call.context.take_snapshot
    if take_snapshot is None:
        raise Conflict("this cluster runs without rowlock's scheduler: its order cannot be changed here")
    moved, other = _find(call, moved_id), _find(call, before or after) if before or after else None
    return await _write(call, take_snapshot, moved, other, place or ("before" if before else "after"))


def _find(call: RestCall, workload_id: str) -> Object:
    """The job of a workload that the caller may see. Raises BadRequest."""
    cache = call.context.cache
    workload = cache.workload(cache.job_uid(workload_id))
    if workload is None:
        raise BadRequest(f"there is no workload with the id {workload_id[:80]!r}: `rowlock queue` lists what waits")
    return workload.job


async def _write(
    call: RestCall, take_snapshot: Callable[[], Snapshot], moved: Object, other: Object | None, place: str
) -> answers.MovedGang:
    for _ in range(_TRIES):
        waiting = await asyncio.to_thread(waiting_gangs, take_snapshot())
        gang = _waiting_gang(waiting, moved)
        anchor = _waiting_gang(waiting, other) if other is not None else None
        if anchor is not None:
            _check_comparable(moved, gang, other or moved, anchor)
        equals = [one.owner[3] for one in waiting if (one.queue, one.priority) == (gang.queue, gang.priority)]
        uids = move_uid(equals, gang.owner[3], anchor.owner[3] if anchor else "", place)
        queue = await call.context.api.get(kinds.QUEUE, "", gang.queue)
        placed = str(objects.annotations(queue).get(QUEUE_ORDER_ANNOTATION) or "").split()
        alive = {one.owner[3] for one in waiting if one.queue == gang.queue}
        order = new_order([uid for uid in placed if uid in alive], uids, gang.owner[3])
        notes = {QUEUE_ORDER_ANNOTATION: " ".join(order) or None}
        patch = {"metadata": {"resourceVersion": objects.meta(queue)["resourceVersion"], "annotations": notes}}
        try:
            await call.context.api.patch(kinds.QUEUE, "", gang.queue, patch, type="merge", options=_OPTIONS)
        except Conflict:
            continue
        await _wait_until_shown(call, uids)
        names = {one.owner[3]: one.owner[2] for one in waiting}
        project = call.context.cache.projects()[objects.namespace(moved)]
        return {
            "name": objects.name(moved), "projectName": project.name, "priority": gang.priority,
            "order": [names[uid] for uid in uids],
        }  # fmt: skip
    raise Conflict("the queue is being changed by others all the time; try again")


async def _wait_until_shown(call: RestCall, uids: Sequence[str]) -> None:
    """Wait until GET /scheduler/queue shows this order, which the scheduler learns of a moment later."""
    wanted = frozenset(uids)
    with suppress(TimeoutError):
        async with asyncio.timeout(_SHOWN_WITHIN):
            while True:
                shown = [uid for uid in await call.context.waiting_order() or () if uid in wanted]
                here = frozenset(shown)
                if shown == [uid for uid in uids if uid in here]:
                    return
                await asyncio.sleep(0.05)


def _waiting_gang(waiting: Sequence[Gang], job: Object) -> Gang:
    found = next((gang for gang in waiting if gang.owner[3] == objects.uid(job)), None)
    if found is None:
        raise BadRequest(f"{objects.name(job)} does not wait for nodes: `rowlock queue` lists what does")
    return found


def _check_comparable(moved: Object, gang: Gang, other: Object, anchor: Gang) -> None:
    """Raises BadRequest."""
    if gang.uid == anchor.uid:
        raise BadRequest(f"{objects.name(moved)} cannot be moved before or after itself")
    if gang.queue != anchor.queue:
        raise BadRequest(
            f"{objects.name(other)} is of another project: between projects quotas and fair shares decide, not an order"
        )
    if gang.priority != anchor.priority:
        raise BadRequest(
            f"{objects.name(moved)} has a {'lower' if gang.priority < anchor.priority else 'higher'} priority than"
            f" {objects.name(other)}, and the higher one always comes first: submit one of them again with --priority"
        )


def move_uid(uids: Sequence[str], moved: str, anchor: str, place: str) -> list[str]:
    """These uids with `moved` at its new place: "first", "last", or "before" or "after" `anchor`."""
    rest = [uid for uid in uids if uid != moved]
    at = {"first": 0, "last": len(rest)}.get(place)
    if at is None:
        at = rest.index(anchor) + (place == "after")
    return [*rest[:at], moved, *rest[at:]]


def new_order(placed: Sequence[str], uids: Sequence[str], moved: str) -> list[str]:
    """The queue's own order: `placed` are the uids that had a place, `uids` all of one priority in their new order. Those behind the
    last one that needs a place have none: they come by age, as later ones do. Raises BadRequest where there would be too many."""
    needed, equals = {*placed, moved}, frozenset(uids)
    last = max(at for at, uid in enumerate(uids) if uid in needed)
    order = [*(uid for uid in placed if uid not in equals), *uids[: last + 1]]
    if len(order) > _MOST_PLACED:
        raise BadRequest(
            f"{len(order):,} jobs would have a place of their own in this queue; {_MOST_PLACED:,} may have one"
        )
    return order
