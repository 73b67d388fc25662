"""`GET /api/v1/org-unit/projects/telemetry` and `.../departments/telemetry`: quotas, and how much of them is allocated now.

The allocation is what the scheduler counted last. Unlimited quotas are left out of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from rowlock.errors import BadRequest
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.telemetry import Question, answer, parse_question
from rowlock.workloads.inventory import departments, quotas
from rowlock.workloads.inventory.nodes import DEFAULT_POOL

_RESOURCES = {"GPU": "gpu", "CPU": "cpu", "MEMORY": "memory"}
_KINDS = {
    "QUOTA": "",
    "ALLOCATION": "allocated",
    "ALLOCATION_NON_PREEMPTIBLE": "allocatedNonPreemptible",
}
_TYPES = {f"{resource}_{kind}": (resource, kind) for kind in _KINDS for resource in _RESOURCES}
"""Run:ai's telemetry types, in GPUs, millicores and MB."""


class _Unit(NamedTuple):
    """A project or a department."""

    name: str
    department: str
    queue: Object | None


_GROUPS: dict[str, Callable[[_Unit], str]] = {"department": lambda unit: unit.department}
_PROJECT_GROUPS = {"project": lambda unit: unit.name, **_GROUPS}


async def show_projects(call: RestCall) -> Any:
    """GET /org-unit/projects/telemetry: the sum over all projects that the caller sees, or one per group. Raises BadRequest."""
    question = _parse(call, tuple(_PROJECT_GROUPS))
    cache = call.context.cache
    units = [_Unit(one.name, one.department, cache.queue(one.queue)) for one in cache.projects().values()]
    return _answer(call, question, units, _PROJECT_GROUPS)


async def show_departments(call: RestCall) -> Any:
    """GET /org-unit/departments/telemetry: the sum over all departments, or one per group. Raises BadRequest."""
    question = _parse(call, tuple(_GROUPS))
    queues = filter(departments.is_department, call.context.cache.queues())
    units = [_Unit("", departments.department_id(queue), queue) for queue in queues]
    return _answer(call, question, units, _GROUPS)


def _parse(call: RestCall, groups: tuple[str, ...]) -> Question:
    question = parse_question(call, _TYPES, groups, "nodepoolId", "nodepoolName", "departmentId")
    for name in ("nodepoolId", "nodepoolName"):
        if question.query.get(name, DEFAULT_POOL) not in ("", DEFAULT_POOL):
            raise BadRequest(f'{name}: quotas count over all node pools: name "default", or none.')
    return question


def _answer(
    call: RestCall, question: Question, units: list[_Unit], groups: dict[str, Callable[[_Unit], str]]
) -> dict[str, Any]:
    department = question.query.get("departmentId", "")
    chosen = [unit for unit in units if department in ("", unit.department)]
    return answer(call, question, ((unit, _figure(unit.queue, question.type)) for unit in chosen), groups)


def _figure(queue: Object | None, name: str) -> Decimal:
    resource, kind = _TYPES[name]
    if kind == "QUOTA":
        quota = quotas.total_resources_json(queue)[f"{_RESOURCES[resource]}Quota"]
        return max(Decimal(0), Decimal(str(quota)))
    return Decimal(str(quotas.quota_status_json(queue)[_KINDS[kind]][_RESOURCES[resource]]))
