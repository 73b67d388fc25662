"""Refuse a filter by a category or a priority class that neither Run:ai, nor the cluster, nor any workload has.

Jobs created with kubectl may have other values, so the cluster and the workloads are checked besides the known values.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from rowlock import kinds
from rowlock.errors import ApiError, BadRequest, NotFound
from rowlock.rest.call import RestCall
from rowlock.workloads import list_query
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.submission import CATEGORIES, PRIORITIES

_WORDS = {"category": CATEGORIES, "priorityClassName": tuple(PRIORITIES)}
_CLASS_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
CountRows = Callable[[list_query.Query], Awaitable[int]]
"""Counts the workloads of the list that match a query."""


async def refuse_unknown_words(call: RestCall, query: list_query.Query, count_rows: CountRows) -> None:
    """Raises BadRequest for a filter that no row can match, since an empty list would hide the mistake."""
    for condition in query.filters:
        known = _WORDS.get(condition.field, ())
        if not known or condition.operator not in ("==", "!=") or condition.value in known:
            continue
        if await _is_class_of_cluster(call, condition):
            continue
        if not await count_rows(list_query.Query((list_query.Filter(condition.field, "==", condition.value),))):
            raise BadRequest(_message(condition, known))


async def _is_class_of_cluster(call: RestCall, condition: list_query.Filter) -> bool:
    if condition.field != "priorityClassName" or not _CLASS_NAME.fullmatch(condition.value):
        return False
    try:
        await (call.context.server_api or call.context.api).get(kinds.PRIORITY_CLASS, "", condition.value)
    except NotFound:
        return False
    except ApiError:
        return True  # cannot be checked: do not refuse the filter
    return True


def _message(condition: list_query.Filter, known: tuple[str, ...]) -> str:
    field, value = condition.field, condition.value
    return (
        f"filterBy: {field} is {value[:60]!r} for no workload.{did_you_mean(value, known)}"
        f" It is one of {', '.join(known)}, or what a job brings itself."
    )
