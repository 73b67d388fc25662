"""Suspends and resumes workloads: `spec.runPolicy.suspend` of the job, `spec.suspend` of a Job, JobSet or TrainJob, which its operator follows."""

from __future__ import annotations

from typing import Any

from rowlock import kinds, objects
from rowlock.errors import Conflict
from rowlock.objects import Object
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.run_history.checkpoint_use import reserve_checkpoints
from rowlock.rest.workload_routes.gang_objects import refuse_queued
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS, find_workload, stopped_by
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION, TERMINAL
from rowlock.workloads.run_options.start_order import NO_ORDER
from rowlock.workloads.runai_json import Workload


async def suspend(call: RestCall) -> Any:
    """POST /workloads/distributed/{id}/suspend: set `spec.runPolicy.suspend` to true, so that the operator deletes the pods. `by` names
    the requesting command, which is recorded in the job. Raises NotFound, Conflict."""
    await set_suspended(call, find_workload(call), suspended=True, by=stopped_by(call.validate_query("by")))
    return JsonResult(202, ACCEPTED)


async def resume(call: RestCall) -> Any:
    """POST /workloads/distributed/{id}/resume: set `spec.runPolicy.suspend` to false. Raises NotFound, Conflict."""
    call.validate_query()
    await set_suspended(call, find_workload(call), suspended=False)
    return JsonResult(202, ACCEPTED)


async def set_suspended(call: RestCall, workload: Workload, *, suspended: bool, by: str = "") -> None:
    """Suspend or resume a workload, and wait until the cache shows it. Raises Conflict for a finished workload."""
    job, phase = workload.job, workload.status().phase
    word = "suspended" if suspended else "resumed"
    if phase in TERMINAL:
        raise Conflict(
            f"workload {objects.name(job)} has {phase.lower()} and cannot be {word}; submit it again instead"
        )
    if suspended:
        await _patch_suspend(call, job, suspend=True, by=by)
        return
    with reserve_checkpoints(call.context.cache, call.context.reserved_checkpoints, job):
        await _patch_suspend(call, job, suspend=False)


async def _patch_suspend(call: RestCall, job: Object, *, suspend: bool, by: str = "") -> None:
    refuse_queued(job)
    policy = {"suspend": suspend}
    patch: dict[str, Any] = {"spec": {"runPolicy": policy} if kinds.by_object(job) in kinds.JOBS else policy}
    notes: dict[str, str | None] = {name: None for name in NO_ORDER if name in objects.annotations(job)}
    if by or STOPPED_BY_ANNOTATION in objects.annotations(job):
        notes[STOPPED_BY_ANNOTATION] = by or None
    if notes:
        patch["metadata"] = {"annotations": notes}
    kind, namespace, name = kinds.by_object(job), objects.namespace(job), objects.name(job)
    await call.context.api.patch(kind, namespace, name, patch, type="merge", options=WRITE_OPTIONS)
