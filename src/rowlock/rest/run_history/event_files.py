"""GET /runs/{id}/event-files, and the curves of TensorBoard's event files that a run has on this machine."""

from __future__ import annotations

import os
from typing import Any

from rowlock import objects
from rowlock.curves.curves import Curve
from rowlock.curves.event_records import RunPlaces
from rowlock.errors import Unavailable, Unsupported
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.run_history.past_workloads import PastRun
from rowlock.rest.run_history.runs import require_run, what_ran
from rowlock.workloads.frameworks import checkpoints_owner


async def show(call: RestCall) -> Any:
    """GET /runs/{id}/event-files: path, place (its directory below the one that was searched) and begin of each file, the oldest first.
    Raises NotFound, Unavailable, Unsupported on a real cluster."""
    call.validate_query()
    run = await require_run(call, str(call.path["id"]))
    event_files = call.context.settings.event_files
    if event_files is None:
        raise Unsupported(
            "event files of a real cluster lie in the volumes of its pods, which this server does not see."
        )
    places = places_of(run)
    found = await call.context.reading_event_files.take_turn(call.user, lambda: event_files.find(places))
    return {"files": [{"path": f.path, "place": f.place, "begunAt": objects.timestamp(f.begun)} for f in found]}


async def read_curves(call: RestCall, run: PastRun) -> tuple[dict[str, Curve], list[str]]:
    """The curves by name and notes on what was left out; none on a real cluster."""
    event_files = call.context.settings.event_files
    if event_files is None:
        return {}, []
    places = places_of(run)
    try:
        return await call.context.reading_event_files.take_turn(call.user, lambda: event_files.read(places))
    except Unavailable as error:
        return {}, [f"its event files are left out: {error.message}"]


def places_of(run: PastRun) -> RunPlaces:
    """Where a run may have written event files, by its job and its pods."""
    record, job = run.record, run.record.body["job"]
    copy = str((what_ran(job)["code"] or {}).get("copy") or "")
    directories, users = [copy], set[int | None]()
    for pod in run.pods:
        spec = pod.body.get("spec") or {}
        main: Object = next(iter(spec.get("containers") or ()), {})
        directories.append(str(main.get("workingDir") or ""))
        asked = [(each or {}).get("runAsUser") for each in (main.get("securityContext"), spec.get("securityContext"))]
        users.add(next((int(user) for user in asked if user is not None), None))
    return RunPlaces(
        record.uid, record.namespace, record.namespace_uid, checkpoints_owner(job) or record.uid,
        tuple(dict.fromkeys(os.path.normpath(each) for each in directories if os.path.isabs(each))),
        {pod.pod_uid: pod.name for pod in run.pods}, frozenset(users), record.created, record.finished or record.deleted,
    )  # fmt: skip
