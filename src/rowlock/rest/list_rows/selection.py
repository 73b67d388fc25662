"""Filter and sort workloads in steps, so that a list of any size lets other tasks of the event loop have their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rowlock.rest.informers import InformerCache
from rowlock.rest.list_rows.workload_rows import FIELDS, WorkloadRow
from rowlock.workloads import list_query

_TURN = 0.001
"""Seconds of steps before other tasks of the event loop get their turn. A turn costs as much as reading a hundred rows."""


async def select_rows(cache: InformerCache, parsed_query: list_query.Query) -> Sequence[WorkloadRow]:
    """The matching rows in order. Other requests are served between the steps."""
    name = next((f.value for f in parsed_query.filters if (f.field, f.operator) == ("name", "==")), None)

    def rows() -> Sequence[WorkloadRow]:
        return cache.rows() if name is None else cache.rows_named(name)

    steps = list_query.select_in_steps(rows(), parsed_query, FIELDS)
    began = time.perf_counter()
    try:
        while True:
            next(steps)
            if time.perf_counter() - began > _TURN:
                await asyncio.sleep(0)
                began = time.perf_counter()
    except StopIteration as end:
        found: Sequence[WorkloadRow] = end.value
        return found
    except KeyError:  # a workload was deleted between two steps: start again; cached fields make that quick
        return list_query.select_rows(rows(), parsed_query, FIELDS)
