"""The list items of the workloads that were shown last: pages are asked for again and again.

A list item costs a tenth of a millisecond, most of it for fields that stay as they are until one of the workload's objects changes.
Those of as many workloads as fit on a few pages are kept, with the other facts that a row remembers (`WorkloadRow.known`), and are
forgotten with them.
"""

from __future__ import annotations

from typing import Any

from rowlock.rest.list_rows.workload_rows import WorkloadRow
from rowlock.workloads import runai_json
from rowlock.workloads.runai_json import SteadyFields, Workload

MAX_ITEMS = 1000
"""Workloads whose items are kept; each takes some 7 KiB."""
STEADY_FIELDS = "steady fields"
"""Their place in `WorkloadRow.known`."""


class ListItems:
    """The items that are kept, for all callers: a row holds what everybody who sees the workload sees of it."""

    def __init__(self, limit: int = MAX_ITEMS) -> None:
        self._limit = limit
        self._shown: dict[str, WorkloadRow] = {}
        """By uid; the one that was shown longest ago comes first."""

    def item_json(self, row: WorkloadRow, workload: Workload) -> dict[str, Any]:
        """The list item of a row, whose workload this is now. The caller may set fields of the item itself, and none within."""
        steady: SteadyFields | None = row.known.get(STEADY_FIELDS)
        if steady is None:
            steady = row.known[STEADY_FIELDS] = runai_json.steady_fields(workload)
        self._note_shown(row)
        return runai_json.workload_json(workload, steady)

    def _note_shown(self, row: WorkloadRow) -> None:
        self._shown.pop(row.uid, None)
        self._shown[row.uid] = row
        if len(self._shown) > self._limit:
            oldest = self._shown.pop(next(iter(self._shown)))
            oldest.known.pop(STEADY_FIELDS, None)
