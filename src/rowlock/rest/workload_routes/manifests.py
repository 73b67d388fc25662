"""`/api/v2/workloads`: workloads submitted as manifests of jobs. They appear in every list, as all jobs do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import BadRequest, Cause, Conflict
from rowlock.objects import Object
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.rest.inventory.scopes import require_project
from rowlock.rest.manifest_check import machine_remarks
from rowlock.rest.run_history.checkpoint_use import reserve_checkpoints
from rowlock.rest.workload_routes.gang_objects import dress_for_scheduler, refuse_host_image, require_queue
from rowlock.rest.workload_routes.job_creation import create_planned
from rowlock.rest.workloads import ACCEPTED, delete_workload, ensure_name_is_free, find_workload
from rowlock.workloads import manifests
from rowlock.workloads.manifests import ManifestRequest, manifest_workload_json
from rowlock.workloads.objects import SubmitPlan, Submitter
from rowlock.workloads.runai_json import Workload

_OPTIONS = WriteOptions(manager="rowlock", validation="Strict")
_MAX_TRIES = 5


async def _read_request(call: RestCall, *, new: bool) -> ManifestRequest:
    """The parsed body. YAML is parsed on a thread, because 10 KiB of it can take half a second. Raises BadRequest."""
    body = await call.json()
    if isinstance(body, dict) and body.get("manifestBase64Encoded"):
        return await asyncio.to_thread(manifests.parse_manifest_request, body, new=new)
    return manifests.parse_manifest_request(body, new=new)


async def create(call: RestCall) -> Any:
    """POST /api/v2/workloads: create the job of a manifest in a project. A manifest that names no scheduler gets what the real
    cluster's scheduler needs. Raises BadRequest, AlreadyExists, and what admission raises."""
    call.validate_query()
    request = await _read_request(call, new=True)
    check_cluster_id(call, request.cluster)
    cache, identity = call.context.cache, call.context.new_id()
    project = require_project(call, request.project, "metadata.projectId")
    if request.is_name_prefix:
        request = replace(request, name=f"{request.name}-{identity.replace('-', '')[:12]}")
    job = manifests.to_job(request, project, Submitter(identity, call.user))
    kind = kinds.by_object(job)
    call.require("create", kind, project.namespace)
    refuse_host_image(call, job)
    dialect = call.context.settings.dialect
    is_dressed = dialect is not None and not dialect.is_named_in(job)
    if is_dressed:
        job = await dress_for_scheduler(call, job, lambda scheduler, _: scheduler.dress_manifest(job))
        await require_queue(call, job)
    await ensure_name_is_free(cache, project, request.name)
    call.notices.extend(machine_remarks(call, kind, job))
    with reserve_checkpoints(cache, call.context.reserved_checkpoints, job):
        created = await create_planned(call, SubmitPlan(job), options=_OPTIONS, has_gang=is_dressed)
    workload = cache.workload(objects.uid(created)) or Workload(created, [], None, project, cache.cluster)
    return JsonResult(202, manifest_workload_json(workload))


async def show(call: RestCall) -> Any:
    """GET /api/v2/workloads/{id}: the manifest as submitted, and as stored now. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    sync = {"status": "Deleting" if objects.is_deleting(workload.job) else "Synced", "message": ""}
    return {"workload": manifest_workload_json(workload), "syncInfo": sync}


async def update(call: RestCall) -> Any:
    """PUT /api/v2/workloads/{id}: change priority, category or spec, as far as admission allows. Raises
    NotFound, BadRequest, and what admission raises."""
    call.validate_query()
    workload = find_workload(call)
    request, job = await _read_request(call, new=False), workload.job
    kind = kinds.by_object(job)
    if request.kind not in (None, kind):
        message = f"is a {request.kind.name if request.kind else ''}, but the workload is a {kind.name}."
        raise BadRequest(f"manifest: {message}", causes=[Cause("immutable", message, "manifest")])
    await _write_until_fresh(call, job, lambda current: _change_job(call, request, current))
    return JsonResult(202, manifest_workload_json(call.context.cache.workload(objects.uid(job)) or workload))


def _change_job(call: RestCall, request: ManifestRequest, job: Object) -> Object:
    """The job with the request's changes; a new manifest gets the scheduler's fields as at a submit."""
    labels = {**objects.labels(job), **request.labels}
    pod_labels = {name: labels[name] for name in manifests.POD_LABELS if name in labels}
    spec = manifests.add_pod_labels(request.manifest or job, pod_labels)
    changed = {**job, "metadata": {**objects.meta(job), "labels": labels}, "spec": spec}
    if request.manifest is not None:
        refuse_host_image(call, changed)
    dialect = call.context.settings.dialect
    if dialect is not None and request.manifest is not None and not dialect.is_named_in(changed):
        nodes = list(call.context.cache.nodes())
        if causes := list(dialect.refusals(changed, nodes)):
            raise BadRequest(causes[0].message, causes=causes)
        return dialect.share_gpus(dialect.dress_manifest(changed), nodes)[0]
    return changed


async def _write_until_fresh(call: RestCall, job: Object, change: Callable[[Object], Object]) -> Object:
    """Update a job that its operator also writes to: on a conflict, apply the change to the current object and retry. Raises ApiError."""
    api, kind, tries = call.context.api, kinds.by_object(job), 0
    while True:
        try:
            return await api.update(kind, change(job), options=_OPTIONS)
        except Conflict:
            tries += 1
            current = await api.get(kind, objects.namespace(job), objects.name(job))
            if tries == _MAX_TRIES or objects.uid(current) != objects.uid(job):
                raise
            job = current


async def delete(call: RestCall) -> Any:
    """DELETE /api/v2/workloads/{id}: delete the job, and what it owns in the background. Raises NotFound."""
    call.validate_query()
    await delete_workload(call, find_workload(call))
    return JsonResult(202, ACCEPTED)
