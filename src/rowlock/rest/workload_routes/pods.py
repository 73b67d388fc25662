"""The pods of all workloads: `GET /api/v1/workloads/pods` and `/api/v1/workloads/pods/count`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.errors import BadRequest
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.workloads import list_query, runai_json
from rowlock.workloads import pods as ranks
from rowlock.workloads.runai_json import Workload

_WORKLOADS_PER_TURN = 256
"""Workloads processed before yielding to the event loop."""
_OTHER_PARAMETERS = ("deleted", "verbosity", "completed")
_COMPLETED = {"true": True, "false": False, "all": None}


class PodRow(NamedTuple):
    """A pod and its workload."""

    workload: Workload
    pod: Object


_READERS: list_query.Readers[PodRow] = {
    "name": lambda row: objects.name(row.pod),
    "clusterId": lambda row: row.workload.cluster,
    "projectId": lambda row: row.workload.project.id,
    "workloadId": lambda row: runai_json.workload_id(row.workload.job),
    "revisionId": lambda row: None,
    "nodeName": lambda row: objects.dig(row.pod, "spec.nodeName"),
    "currentNodepool": lambda row: runai_json.node_pool_name(row.workload.job),
    "createdAt": lambda row: objects.meta(row.pod).get("creationTimestamp"),
    "completedAt": lambda row: ranks.completed_at(row.pod),
    "deletedAt": lambda row: objects.meta(row.pod).get("deletionTimestamp"),
    list_query.SEARCH: lambda row: f"{objects.name(row.pod)}\n{objects.dig(row.pod, 'spec.nodeName', '')}".lower(),
}


async def _select_pods(call: RestCall) -> tuple[Sequence[PodRow], list_query.Query]:
    completed = call.query.get("completed", "all")
    if completed not in _COMPLETED:
        raise BadRequest(f"completed must be true, false or all, but is {completed[:60]!r}.")
    if call.query.get("verbosity", "full") not in ("brief", "full"):
        raise BadRequest(f"verbosity must be brief or full, but is {call.query['verbosity'][:60]!r}.")
    if list_query.asks_for_deleted(call.query):  # deleted pods are not listed
        return list_query.select(call.query, [], _READERS, other_parameters=_OTHER_PARAMETERS)
    rows: list[PodRow] = []
    cache, wanted = call.context.cache, _COMPLETED[completed]
    visible = {space for space in cache.projects() if call.allows("list", kinds.POD, space)}
    for number, row in enumerate(cache.rows(), 1):
        workload = cache.workload(row.uid) if row.namespace in visible else None
        if workload is not None:
            pods = [p for p in workload.pods if wanted is None or bool(ranks.completed_at(p)) == wanted]
            rows += [PodRow(workload, pod) for pod in pods]
        if number % _WORKLOADS_PER_TURN == 0:
            await asyncio.sleep(0)
    return list_query.select(call.query, rows, _READERS, other_parameters=_OTHER_PARAMETERS)


def _pod_json(row: PodRow) -> answers.Pod:
    card_memory = row.workload.card_memory(str(objects.dig(row.pod, "spec.nodeName") or ""))
    body = ranks.pod_json(row.pod, runai_json.workload_json(row.workload), card_memory)
    return {**body, **ranks.rank_fields(row.workload.job, row.pod)}


async def index(call: RestCall) -> Any:
    """GET /workloads/pods: pods of workloads in every project, the newest workload's first. Raises BadRequest."""
    rows, query = await _select_pods(call)
    return list_query.list_body("pods", rows, query, _pod_json)


async def count(call: RestCall) -> Any:
    """GET /workloads/pods/count: how many pods the filters leave. Raises BadRequest."""
    return {"count": len((await _select_pods(call))[0])}
