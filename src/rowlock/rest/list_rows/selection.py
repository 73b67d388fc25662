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


class SortedRows:
    """The whole list in orders that stay as long as no workload comes or goes: by what never changes of one."""

    _FIELDS = frozenset({"name", "namespace", "createdAt"})

    def __init__(self) -> None:
        self._rows: Sequence[WorkloadRow] = ()
        self._orders: dict[tuple[str, bool], Sequence[WorkloadRow]] = {}

    def find(self, rows: Sequence[WorkloadRow], query: list_query.Query) -> Sequence[WorkloadRow] | None:
        """These rows in the order of the query, where that was kept. The cache makes a new list when there are others."""
        return self._orders.get((query.sort, query.descending)) if rows is self._rows and _is_whole(query) else None

    def keep(self, rows: Sequence[WorkloadRow], query: list_query.Query, ordered: Sequence[WorkloadRow]) -> None:
        """Keep an order, if it is one that stays."""
        if query.sort not in self._FIELDS or not _is_whole(query):
            return
        if rows is not self._rows:
            self._rows, self._orders = rows, {}
        self._orders[query.sort, query.descending] = ordered


def _is_whole(query: list_query.Query) -> bool:
    return not query.filters and not query.search


async def select_rows(
    cache: InformerCache, parsed_query: list_query.Query, sorted_rows: SortedRows
) -> Sequence[WorkloadRow]:
    """The matching rows in order. Other requests are served between the steps."""
    name = next((f.value for f in parsed_query.filters if (f.field, f.operator) == ("name", "==")), None)

    def rows() -> Sequence[WorkloadRow]:
        return cache.rows() if name is None else cache.rows_named(name)

    everything = rows()
    if (kept := sorted_rows.find(everything, parsed_query)) is not None:
        return kept
    steps = list_query.select_in_steps(everything, parsed_query, FIELDS)
    began = time.perf_counter()
    try:
        while True:
            next(steps)
            if time.perf_counter() - began > _TURN:
                await asyncio.sleep(0)
                began = time.perf_counter()
    except StopIteration as end:
        found: Sequence[WorkloadRow] = end.value
        sorted_rows.keep(everything, parsed_query, found)
        return found
    except KeyError:  # a workload was deleted between two steps: start again; cached fields make that quick
        return list_query.select_rows(rows(), parsed_query, FIELDS)
