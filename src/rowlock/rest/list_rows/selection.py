"""Filter and sort workloads in steps, so that a list of any size does not block the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rowlock.rest.informers import InformerCache
from rowlock.rest.list_rows.workload_rows import FIELDS, WorkloadRow
from rowlock.workloads import list_query

_TURN = 0.001
"""Seconds of steps before yielding to the event loop, which costs as much as reading a hundred rows."""


class SortedRows:
    """Caches results that are filtered and sorted only by fields that never change, until a workload is added or deleted. The
    pages of one list, and a polled list, need the same rows."""

    _FIELDS = frozenset({"name", "namespace", "createdAt"})
    _MAX_KEPT = 16

    def __init__(self) -> None:
        self._rows: Sequence[WorkloadRow] = ()
        self._kept: dict[_Selection, Sequence[WorkloadRow]] = {}
        """Least recently used first."""

    def find(self, rows: Sequence[WorkloadRow], query: list_query.Query) -> Sequence[WorkloadRow] | None:
        """The cached result of the query for these rows, or None. The informer cache makes a new list when its rows change."""
        selection = _selection_of(query)
        if rows is not self._rows or selection not in self._kept:
            return None
        self._kept[selection] = found = self._kept.pop(selection)
        return found

    def keep(self, rows: Sequence[WorkloadRow], query: list_query.Query, found: Sequence[WorkloadRow]) -> None:
        """Cache the result of the query for these rows, if it only depends on fields that never change."""
        fields = {query.sort, *(condition.field for condition in query.filters)} - {""}
        if not fields or not fields <= self._FIELDS or query.search:
            return
        if rows is not self._rows:
            self._rows, self._kept = rows, {}
        self._kept[_selection_of(query)] = found
        if len(self._kept) > self._MAX_KEPT:
            del self._kept[next(iter(self._kept))]


_Selection = tuple[tuple[list_query.Filter, ...], str, str, bool]


def _selection_of(query: list_query.Query) -> _Selection:
    return query.filters, query.search, query.sort, query.descending


async def select_rows(
    cache: InformerCache, parsed_query: list_query.Query, sorted_rows: SortedRows
) -> Sequence[WorkloadRow]:
    """The matching rows in order. Other requests are served between the steps."""
    name = next((f.value for f in parsed_query.filters if (f.field, f.operator) == ("name", "==")), None)

    def rows() -> Sequence[WorkloadRow]:
        return cache.rows() if name is None else cache.rows_named(name)

    everything = rows()
    if name is None and (kept := sorted_rows.find(everything, parsed_query)) is not None:
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
        if name is None:  # the rows of one name are a new list each time
            sorted_rows.keep(everything, parsed_query, found)
        return found
    except KeyError:  # a workload was deleted between two steps: start again; cached fields make that quick
        return list_query.select_rows(rows(), parsed_query, FIELDS)
