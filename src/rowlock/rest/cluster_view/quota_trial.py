"""`POST /api/v1/scheduler/quota-what-if`: which workloads would start, and which would be evicted, with other quotas.
Nothing is stored."""

from __future__ import annotations

import asyncio
from typing import Any

from rowlock.errors import Conflict
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.scheduling.explain.quota_what_if import QuotaOutcome, try_quotas
from rowlock.scheduling.model.resources import UNLIMITED, WHOLE_GPU
from rowlock.scheduling.model.snapshot import Gang
from rowlock.workloads import runai_json
from rowlock.workloads.body_fields import BodyErrors, Fields, did_you_mean
from rowlock.workloads.projects import Project

_MAX_PROJECTS = 200
_MAX_GPUS = 10_000_000
_MAX_NAMED = 200
"""Most workloads in one list of the answer."""


async def try_out(call: RestCall) -> Any:
    """POST /scheduler/quota-what-if: what other quotas of `projects` (each an id or name, and `gpuQuota` in GPUs, -1 for unlimited)
    would change. Raises BadRequest, Conflict."""
    call.validate_query()
    asked = _parse_quotas(call.context.cache, await call.json())
    take_snapshot = call.context.take_snapshot
    if take_snapshot is None:
        raise Conflict(
            "this cluster runs without rowlock's scheduler: nobody here knows what other quotas would change"
        )
    async with call.context.planning.take(call.user):
        outcome = await asyncio.to_thread(try_quotas, take_snapshot(), {p.queue: quota for p, quota in asked})
    return _outcome_json(call.context.cache, outcome)


def _parse_quotas(cache: InformerCache, body: Any) -> list[tuple[Project, int]]:
    """Projects and their quotas in hundredths of a GPU. Raises BadRequest."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, dict) else {}, errors)
    top.allow_only("projects")
    items = top.items("projects")
    if not 1 <= len(items) <= _MAX_PROJECTS:
        top.add_error("projects", "required", f"is a list of 1 to {_MAX_PROJECTS} projects with their quotas.")
    found: list[tuple[Project, int]] = []
    for item in items[:_MAX_PROJECTS]:
        item.allow_only("id", "gpuQuota")
        name, quota = item.text("id"), item.number("gpuQuota")
        project = cache.project(name) if name else None
        if project is None:
            names = [one.name for one in cache.projects().values()]
            item.add_error("id", "unknown", f"there is no project {name[:60]!r}.{did_you_mean(name, names)}")
        if quota is None or not (quota == UNLIMITED or 0 <= quota <= _MAX_GPUS):
            item.add_error("gpuQuota", "min", "is a number of GPUs, 0 or more, or -1 for unlimited.")
        elif project is not None:
            found.append((project, UNLIMITED if quota == UNLIMITED else round(quota * WHOLE_GPU)))
    errors.raise_if_any()
    return found


def _outcome_json(cache: InformerCache, outcome: QuotaOutcome) -> dict[str, Any]:
    shares = outcome.fair_shares or {}
    return {
        "starts": [_gang_json(cache, gang) for gang in outcome.starts[:_MAX_NAMED]],
        "startsAfter": [_gang_json(cache, gang) for gang in outcome.starts_after[:_MAX_NAMED]],
        "waits": [_gang_json(cache, gang) for gang in outcome.waits[:_MAX_NAMED]],
        "yields": [
            {**_gang_json(cache, one.gang), "pods": one.pods, "action": one.action}
            for one in outcome.yields[:_MAX_NAMED]
        ],
        "total": len(outcome.starts) + len(outcome.starts_after) + len(outcome.waits) + len(outcome.yields),
        "fairShares": [
            {"projectId": project.id, "gpu": shares[project.queue] / WHOLE_GPU}
            for project in sorted(cache.projects().values(), key=lambda one: one.name)
            if project.queue in shares
        ],
    }


def _gang_json(cache: InformerCache, gang: Gang) -> dict[str, Any]:
    job, project = cache.job(gang.owner[3]), cache.projects().get(gang.namespace)
    return {
        "workloadId": runai_json.workload_id(job) if job else "",
        "name": gang.owner[2] or gang.name,
        "projectName": project.name if project else gang.namespace,
        "pods": len(gang.tasks),
    }
