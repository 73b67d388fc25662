"""`rowlock check`: report whether the cluster would admit manifests, and which fields have surprising effects, without
writing anything."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, ApiError, BadRequest
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.scheduler import parse_manifests, project_namespace
from rowlock.rest.workload_routes.gang_objects import refuse_host_image
from rowlock.rest.workload_routes.pod_trial import pod_causes
from rowlock.training.admission import advice
from rowlock.training.admission.group_advice import group_remarks
from rowlock.training.admission.shell_advice import signal_remark
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.workloads import runai_json
from rowlock.workloads.body_fields import did_you_mean

_MAX_KIND = 200
"""Most characters of a kind or version quoted in messages."""


async def check(call: RestCall) -> Any:
    """POST /check: for each of `objects`, the refusal ("" means admitted), a hint, and remarks."""
    call.validate_query()
    body = await call.json()
    manifests, namespace = parse_manifests(body), project_namespace(call, body)
    results = []
    for obj in manifests:
        results.append(await _check_object(call, obj, namespace))
        await asyncio.sleep(0)  # a dry run never yields to the event loop
    return {"results": results}


async def _check_object(call: RestCall, obj: Object, namespace: str) -> dict[str, Any]:
    kind_name = str(obj.get("kind", ""))[:_MAX_KIND]
    result: dict[str, Any] = {"kind": kind_name, "name": objects.name(obj), "refused": "", "hint": "", "remarks": []}
    kind = kinds.by_api_version(str(obj.get("apiVersion", "")), kind_name)
    if kind is None or kind.api_version != obj.get("apiVersion"):
        kind_names = [k.name for k in kinds.KINDS]
        refused = f'no matches for kind "{kind_name}" in version "{str(obj.get("apiVersion", ""))[:_MAX_KIND]}"'
        hint = f"It is served as `{kind.api_version}`." if kind else did_you_mean(kind_name, kind_names).strip()
        return {**result, "refused": refused, "hint": hint or "rowlock serves no such kind."}
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return {**result, "refused": f"{kind_name}: metadata with a name is missing"}
    placed = {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or namespace}}
    refused, warnings = await _refusal(call, kind, placed)
    refused = refused or _host_image_refusal(call, placed)
    if kind in kinds.JOBS and not refused:
        refused = advice.late_refusal(kind, placed)
        result["remarks"] = [] if refused else advice.job_remarks(kind, placed) + await _pod_remarks(call, placed)
        result["remarks"] += [] if refused else await _group_remarks(call, kind, placed)
    elif not refused:  # what the API server warns kubectl of, and the shells; a job's own advice names both
        result["remarks"] = [*warnings, *_signal_remarks(kind, placed)]
    if not refused:
        result["remarks"] += await image_problems(call, kind, placed)
        result["remarks"] += machine_remarks(call, kind, placed)
    return {**result, "refused": refused, "hint": advice.hint_for(refused) if refused else ""}


def _host_image_refusal(call: RestCall, obj: Object) -> str:
    try:
        refuse_host_image(call, obj)
    except BadRequest as error:
        return error.message
    return ""


async def _pod_remarks(call: RestCall, job: Object) -> list[str]:
    """Remarks on fields that the operator accepts but with which no pod can be created. (A replica's restartPolicy has its own remark.)"""
    causes = [cause for _, cause in await pod_causes(call, job) if cause.field != "spec.restartPolicy"]
    return [
        f"the job is accepted, but no pod can be made with it: {c.field}: {c.message}" for c in dict.fromkeys(causes)
    ]


async def _group_remarks(call: RestCall, kind: kinds.Kind, job: Object) -> list[str]:
    """Remarks on frameworks that would not form one group; of programs whose files are on this machine, by what they import."""
    read, programs = call.context.settings.read_program, dict[str, str]()
    replicas = parse_job(FRAMEWORKS[kind], job).replicas if kind in FRAMEWORKS else {}
    if read is not None and (call.rights is None or os.geteuid()):  # root could read what the caller cannot
        programs = {type_: await asyncio.to_thread(read, replica.template) for type_, replica in replicas.items()}
    return group_remarks(kind, job, programs) if replicas else []


async def image_problems(call: RestCall, kind: kinds.Kind, obj: Object) -> list[str]:
    """One sentence per image of a pod or job that cannot run here; [] without embedded nodes."""
    if call.context.image_problems is None:
        return []
    problems = [text for pod in _pod_templates(kind, obj) for text in await call.context.image_problems(pod)]
    return list(dict.fromkeys(problems))


def machine_remarks(call: RestCall, kind: kinds.Kind, obj: Object) -> list[str]:
    """One sentence for each thing that its pods request but do not get on this machine; [] without embedded nodes."""
    if call.context.pod_remarks is None:
        return []
    place = {"namespace": objects.namespace(obj)}  # short Service names are resolved in it
    templates = [{**pod, "metadata": {**(pod.get("metadata") or {}), **place}} for pod in _pod_templates(kind, obj)]
    remarks = [text for pod in templates for text in call.context.pod_remarks(pod)]
    return list(dict.fromkeys(remarks))


def _signal_remarks(kind: kinds.Kind, obj: Object) -> list[str]:
    """One sentence for each container whose shell may keep SIGTERM from its program."""
    specs = [pod.get("spec") or {} for pod in _pod_templates(kind, obj)]
    containers = [container for spec in specs for container in spec.get("containers") or ()]
    remarks = [text for each in containers for text in signal_remark(each, f"container {each.get('name')}")]
    return list(dict.fromkeys(remarks))


def _pod_templates(kind: kinds.Kind, obj: Object) -> list[Object]:
    """The pods of an object: a pod itself, one for each replica type or replicated job of a workload, or those of a CronJob's Jobs."""
    if kind is kinds.POD:
        return [obj]
    if kind is kinds.CRON_JOB:
        return [objects.dig(obj, "spec.jobTemplate.spec.template") or {}]
    if kind in FRAMEWORKS:
        return [replica.template for replica in parse_job(FRAMEWORKS[kind], obj).replicas.values()]
    return [template for template, _ in runai_json.pod_templates(obj)] if kind in kinds.WORKLOADS else []


async def _refusal(call: RestCall, kind: kinds.Kind, obj: Object) -> tuple[str, list[str]]:
    """Why the cluster would refuse it ("": it would not), and what it would warn of."""
    options = WriteOptions(dry_run=True, validation="Strict")
    try:
        await call.context.api.create(kind, obj, options=options)
    except AlreadyExists:
        return "", []  # the object exists and was checked at its creation
    except ApiError as error:
        return error.message, []
    return "", options.warnings
