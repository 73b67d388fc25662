"""`GET /api/v1/workloads/telemetry`: how many workloads there are, and the GPUs that they hold, now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from rowlock.errors import BadRequest
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.telemetry import answer, parse_question
from rowlock.rest.list_rows.workload_rows import FIELDS, WorkloadRow
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.inventory.nodes import DEFAULT_POOL
from rowlock.workloads.phase import V1_STATUSES

_ROWS_PER_TURN = 128
_TYPES: dict[str, Callable[[WorkloadRow], Decimal | int]] = {
    "WORKLOADS_COUNT": lambda row: 1,
    "GPU_ALLOCATION": lambda row: Decimal(str(FIELDS["allocatedGPU"](row))),
}
_FIELDS = {
    "project": "projectName", "department": "departmentName", "phase": "phase", "type": "type", "category": "category",
    "priority": "priorityClassName", "nodepool": "nodepool", "framework": "distributedFramework",
}  # fmt: skip


def _read_as_text(field: str) -> Callable[[WorkloadRow], str]:
    return lambda row: str(FIELDS[field](row) or (DEFAULT_POOL if field == "nodepool" else ""))


_GROUPS = {word: _read_as_text(field) for word, field in _FIELDS.items()}


async def show(call: RestCall) -> Any:
    """GET /workloads/telemetry: one figure over the workloads that the caller sees, or one per group. Raises BadRequest."""
    question = parse_question(call, _TYPES, _GROUPS, "nodepoolName", "departmentId", "filterByPhases")
    phases = [word for word in question.query.get("filterByPhases", "").split(",") if word]
    for phase in phases:
        if phase not in V1_STATUSES:
            raise BadRequest(
                f"filterByPhases: there is no phase {phase[:60]!r}.{did_you_mean(phase, list(V1_STATUSES))}"
            )
    wanted = {"nodepool": question.query.get("nodepoolName"), "departmentId": question.query.get("departmentId")}
    figures: list[tuple[WorkloadRow, Decimal | int]] = []
    for number, row in enumerate(call.context.cache.rows(), 1):
        is_chosen = not phases or FIELDS["phase"](row) in phases
        if is_chosen and all(value in (None, "", _read_as_text(field)(row)) for field, value in wanted.items()):
            figures.append((row, _TYPES[question.type](row)))
        if number % _ROWS_PER_TURN == 0:
            await asyncio.sleep(0)
    return answer(call, question, figures, _GROUPS)
