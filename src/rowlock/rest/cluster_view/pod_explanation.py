"""Why a pod that belongs to no workload waits: `GET /org-unit/projects/{id}/pods/{pod}/explain`."""

from __future__ import annotations

import asyncio
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.cluster_view.gpu_holders import gpu_holders, want_gpus
from rowlock.rest.projects import find_project
from rowlock.scheduling.explain.what_if import WAITS, DryRunPlanner
from rowlock.scheduling.model.snapshot import Snapshot


async def show(call: RestCall) -> Any:
    """GET /org-unit/projects/{id}/pods/{pod}/explain: what the pod requests, what is free, and who holds GPUs. Raises NotFound,
    Forbidden."""
    call.validate_query()
    project, cache = find_project(call), call.context.cache
    pod = await call.context.api.get(kinds.POD, project.namespace, str(call.path["pod"]))
    scheduled = objects.condition(pod, "PodScheduled") or {}
    is_waiting = not objects.dig(pod, "spec.nodeName") and objects.phase(pod) == "Pending"
    job = cache.job(cache.owner_uid(pod)) if cache.owner_uid(pod) else None
    found: dict[str, Any] = {
        "name": objects.name(pod),
        "projectName": project.name,
        "workloadName": objects.name(job) if job else "",
        "phase": objects.phase(pod),
        "since": str(objects.meta(pod)["creationTimestamp"]),
        "reason": str(scheduled.get("reason") or "") if is_waiting else "",
        "message": str(scheduled.get("message") or "") if is_waiting else "",
        "record": {},
        "holders": [],
        "heldBy": "",
    }
    if is_waiting and job is None:
        found |= await _wait_of(call, pod)
        scheduler = objects.dig(pod, "spec.schedulerName") or "default-scheduler"
        found["message"] = found["message"] or f"It waits for the scheduler {scheduler}, which has not said why."
        if want_gpus([pod]):
            found["holders"], found["heldBy"] = await gpu_holders(cache, project.name)
    return found


async def _wait_of(call: RestCall, pod: Object) -> dict[str, Any]:
    """The fields of the answer that the planner knows better than the pod's condition; {} where another scheduler places the pod."""
    if call.context.take_snapshot is None:
        return {}
    async with call.context.planning.take(call.user):
        return await asyncio.to_thread(explain_pod, call.context.take_snapshot(), objects.uid(pod))


def explain_pod(snapshot: Snapshot, uid: str) -> dict[str, Any]:
    """Let the planner say why the pod of this uid waits: reason, message and record; {} if it does not, or is not the planner's."""
    gang = next((one for one in snapshot.gangs if one.bare and one.tasks[0].uid == uid and not one.foreign), None)
    if gang is None:
        return {}
    (outcome,) = DryRunPlanner(snapshot).dry_run([gang])
    if outcome.verdict != WAITS:
        return {}
    hint = ", or ".join(outcome.changes) or str(outcome.record.get("hint") or "")
    return {
        "reason": str(outcome.record["reason"]), "message": outcome.explanation, "record": outcome.record | {"hint": hint}
    }  # fmt: skip
