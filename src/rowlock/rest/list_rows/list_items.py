"""A cache for the list items of the workloads shown last, since clients request the same pages again and again.

A list item takes 0.1 ms, most of it for fields that change only with the workload's objects. These fields are cached for as many
workloads as fit on a few pages, among the other cached fields of a row (`WorkloadRow.known`), and cleared together with
them.
"""

from __future__ import annotations

from rowlock.answers import workloads as answers
from rowlock.rest.list_rows.workload_rows import WorkloadRow
from rowlock.workloads import runai_json
from rowlock.workloads.runai_json import SteadyFields, Workload

MAX_ITEMS = 1000
"""Most workloads whose items are cached; each takes some 7 KiB."""
STEADY_FIELDS = "steady fields"
"""Key of the cached fields in `WorkloadRow.known`."""


class ListItems:
    """The cached items, shared by all callers, since all who may see a workload see the same item."""

    def __init__(self, limit: int = MAX_ITEMS) -> None:
        self._limit = limit
        self._shown: dict[str, WorkloadRow] = {}
        """By uid, least recently shown first."""

    def item_json(self, row: WorkloadRow, workload: Workload) -> answers.Workload:
        """The list item of a row, whose current workload is given. The caller may set top-level fields of it, but must not change nested ones."""
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
