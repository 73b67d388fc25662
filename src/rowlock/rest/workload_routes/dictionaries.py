"""Words that requests may use: `/api/v1/workload-priorities`, `workload-types`, `workload-categories`."""

from __future__ import annotations

from typing import Any

from rowlock.rest.call import RestCall
from rowlock.workloads import submission
from rowlock.workloads.frameworks import FRAMEWORKS


async def priorities(call: RestCall) -> Any:
    """GET /workload-priorities: the priority classes that a submit may name."""
    call.validate_query()
    return {"priorities": [{"id": n, "name": n, "value": v} for n, v in submission.PRIORITIES.items()]}


async def types(call: RestCall) -> Any:
    """GET /workload-types: the kinds of jobs that are served."""
    call.validate_query()
    fixed = {
        "categoryId": "Train",
        "categoryName": "Train",
        "category": "Train",
        "priorityId": "low",
        "priorityName": "low",
    }
    all_kinds = [framework.kind for framework in FRAMEWORKS]
    return {"types": [{"id": kind.name.lower(), "name": kind.name, "group": kind.group, **fixed} for kind in all_kinds]}


async def categories(call: RestCall) -> Any:
    """GET /workload-categories: the purposes that a workload may have."""
    call.validate_query()
    return {"categories": [{"id": name, "name": name} for name in submission.CATEGORIES]}
