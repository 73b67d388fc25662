"""The query of a list: filterBy, sortBy, search, offset and limit, parsed once and applied to rows.

Rows may be of any type; the caller gives a table of readers, one per field, and `SEARCH` for the searchable text. Only the
fields that a query names are read, so that a page of 50 out of 10,000 costs no more than a page. Unknown parameters and
fields are refused with the nearest known name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Any, TypeVar

from rowlock.errors import BadRequest
from rowlock.objects import is_digits
from rowlock.training.frameworks import registry
from rowlock.workloads.body_fields import did_you_mean

WORKLOAD_FIELDS = (
    "type", "name", "clusterId", "projectId", "projectName", "departmentId", "departmentName", "createdAt",
    "deletedAt", "submittedBy", "phase", "completedAt", "nodepool", "distributedFramework", "allocatedGPU",
    "phaseUpdatedAt", "category", "priority", "priorityClassName", "id", "namespace",
    "totalPendingTimeSeconds", "totalRunningTimeSeconds", "idleGpus", "idleAllocatedGpus",
)  # fmt: skip
"""Fields by which workloads can be filtered and sorted."""
NUMERIC_FIELDS = frozenset({
    "allocatedGPU", "priority", "totalPendingTimeSeconds", "totalRunningTimeSeconds", "totalGpuQuota", "gpuAllocated",
    "idleGpus", "idleAllocatedGpus",
})  # fmt: skip
TIME_FIELDS = frozenset({"createdAt", "updatedAt", "deletedAt", "completedAt", "phaseUpdatedAt", "creationTime"})
Choices = Mapping[str, Sequence[str]]
"""Field → all values that rows may have."""
PHASES = (
    "Creating", "Initializing", "Resuming", "Pending", "Deleting", "Running", "Updating", "Stopped", "Stopping", "Degraded",
    "Failed", "Completed", "Terminating", "Unknown", "Deleted",
)  # fmt: skip
"""Run:ai's phases of a workload, and `Deleted`."""
WORKLOAD_CHOICES: Choices = {
    "phase": PHASES,
    "type": ("Distributed", "Training", "Workspace", "Inference"),
    "distributedFramework": tuple(framework.name for framework in registry.FRAMEWORKS.values()),
}
"""Without priorities and categories: jobs created with kubectl may have others (`rest/list_rows/known_words.py`)."""
_TERM = re.compile(r"(\w+)\s*(==|!=|<=|>=|=@|!@|=\^|=\$|<|>)\s*(.*)")
"""One filter, already stripped: a pattern that also matched the surrounding blanks would take quadratic time."""
DEFAULT_LIMIT, MAX_LIMIT, MAX_FILTERS = 50, 500, 50
_ROWS_PER_STEP = 256
"""Rows read in one step; a field that is not cached takes up to 20 µs per row."""


R = TypeVar("R")
T = TypeVar("T")
Readers = Mapping[str, Callable[[R], Any]]
SEARCH = "search"
"""Key of an additional reader: all searchable text of a row, in lower case."""

Test = Callable[[Sequence[Any]], Iterable[bool]]
"""Tests many values of a field at once, because a call per value would cost more than the test for ten thousand
rows."""
_OPERATORS: dict[str, Callable[[str, str], Callable[[Iterable[str]], Iterable[bool]]]] = {
    "==": lambda value, _: lambda texts: [text == value for text in texts],
    "!=": lambda value, _: lambda texts: [text != value for text in texts],
    "=@": lambda _, small: lambda texts: [small in text.lower() for text in texts],
    "!@": lambda _, small: lambda texts: [small not in text.lower() for text in texts],
    "=^": lambda _, small: lambda texts: [text.lower().startswith(small) for text in texts],
    "=$": lambda _, small: lambda texts: [text.lower().endswith(small) for text in texts],
}
"""Operator → maker of a test of texts, given a filter's value, and the value in lower case."""


@dataclass(frozen=True, slots=True)
class Filter:
    field: str
    operator: str
    value: str

    def to_test(self) -> Test:
        """The test for values of the field."""
        if self.operator in ("<=", ">="):
            return lambda values: [_compare_with_bound(actual, self.operator, self.value) for actual in values]
        find_wanted = _OPERATORS[self.operator](self.value, self.value.lower())
        return lambda values: find_wanted(_texts_of(values))


def _texts_of(values: Sequence[Any]) -> Iterable[str]:
    if _are_texts(values):
        return values
    return ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def _are_texts(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= {str}


def _compare_with_bound(actual: Any, operator: str, bound: str) -> bool:
    if actual is None:
        return False
    if isinstance(actual, int | float):
        number = _parse_number(bound)
        return actual <= number if operator == "<=" else actual >= number
    return str(actual) <= bound if operator == "<=" else str(actual) >= bound


@dataclass(frozen=True, slots=True)
class Query:
    filters: tuple[Filter, ...] = ()
    sort: str = ""
    descending: bool = False
    search: str = ""
    offset: int = 0
    limit: int = DEFAULT_LIMIT


def parse_query(
    parameters: Mapping[str, str],
    fields: Sequence[str] = WORKLOAD_FIELDS,
    *,
    other_parameters: Sequence[str] = (),
    choices: Choices = WORKLOAD_CHOICES,
) -> Query:
    """Parse a list's query. `other_parameters` are accepted but not parsed. Raises BadRequest for unknown names and bad values."""
    allowed = ("filterBy", "sortBy", "sortOrder", "search", "offset", "limit", *other_parameters)
    for name in parameters:
        if name.rstrip("?") and name not in allowed:
            raise BadRequest(f"there is no query parameter {name!r}.{did_you_mean(name, allowed)}")
    sort = parameters.get("sortBy", "")
    if sort and sort not in fields:
        raise BadRequest(f"sortBy: there is no field {sort!r}.{did_you_mean(sort, fields)}")
    order = parameters.get("sortOrder", "asc")
    if order not in ("asc", "desc"):
        raise BadRequest(f"sortOrder must be asc or desc, but is {order!r}.")
    offset, limit = _parse_count(parameters, "offset", 0), _parse_count(parameters, "limit", DEFAULT_LIMIT)
    if not 1 <= limit <= MAX_LIMIT:
        raise BadRequest(f"limit must be between 1 and {MAX_LIMIT}, but is {limit}.")
    filters = tuple(_parse_filters(parameters.get("filterBy", ""), fields, choices))
    return Query(filters, sort, order == "desc", parameters.get("search", "").strip().lower(), offset, limit)


def asks_for_deleted(parameters: Mapping[str, str]) -> bool:
    """Whether a list shall contain deleted workloads or pods instead of existing ones. Raises BadRequest."""
    text = parameters.get("deleted") or "false"
    if text not in ("true", "false"):
        raise BadRequest(f"deleted must be true or false, but is {text[:60]!r}.")
    return text == "true"


def _parse_filters(text: str, fields: Sequence[str], choices: Choices) -> Iterable[Filter]:
    parts = [part for p in text.split(",") if (part := p.strip())]
    if len(parts) > MAX_FILTERS:
        raise BadRequest(f"filterBy has {len(parts):,} filters; {MAX_FILTERS} are allowed: each looks at every row.")
    for part in parts:
        term = _TERM.fullmatch(part)
        if not term or term[2] in ("<", ">"):
            raise BadRequest(
                f"filterBy: {part!r} is not FIELD OPERATOR VALUE, where OPERATOR is one of ==, !=, <=, >=, =@, !@, =^, =$."
            )
        if term[1] not in fields:
            raise BadRequest(f"filterBy: there is no field {term[1]!r}.{did_you_mean(term[1], fields)}")
        yield Filter(term[1], term[2], _check_value(term[1], term[2], term[3], choices))


def _check_value(field: str, operator: str, value: str, choices: Choices) -> str:
    """The value to compare with. Raises BadRequest for one that no row can have, since an empty list would hide the mistake."""
    if operator not in ("==", "!=", "<=", ">="):
        return value  # part of a value
    if not value and operator in ("==", "!=") and field not in choices:
        return value  # matches absent values
    if field in choices and value not in choices[field]:
        known = ", ".join(choices[field])
        raise BadRequest(
            f"filterBy: {field} is never {value[:60]!r}.{did_you_mean(value, choices[field])} It is one of {known}."
        )
    if field in NUMERIC_FIELDS:
        _parse_number(value)
    return _normalize_time(field, value) if field in TIME_FIELDS else value


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise BadRequest(f"filterBy: {text[:60]!r} is not a number.")
    return number


def _normalize_time(field: str, text: str) -> str:
    """A time as UTC text, as rows have it, so that texts compare like times; a date stands for its first moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"filterBy: {field} is a time such as 2026-01-31 or 2026-01-31T12:00:00Z, but {text[:60]!r} is none."
        raise BadRequest(message) from None
    if moment.tzinfo is None:
        is_date = moment == datetime(moment.year, moment.month, moment.day)
        return moment.date().isoformat() if is_date else f"{moment.isoformat()}Z"
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _parse_count(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not is_digits(text):
        raise BadRequest(f"{name} must be a whole number no less than 0, but is {text!r}.")
    return int(text)


def select_rows(rows: Sequence[R], query: Query, readers: Readers[R]) -> Sequence[R]:
    """The matching rows in the query's order; without sortBy in the given order."""
    steps = select_in_steps(rows, query, readers)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Sequence[R] = end.value
            return found


def select_in_steps(rows: Sequence[R], query: Query, readers: Readers[R]) -> Generator[None, None, Sequence[R]]:
    """`select_rows` in steps of a few hundred rows, between which the caller may yield to other tasks."""
    matching = rows
    for condition in query.filters:
        matching = yield from _keep(matching, readers[condition.field], condition.to_test())
    if query.search:
        matching = yield from _keep(matching, readers[SEARCH], lambda texts: [query.search in text for text in texts])
    if query.sort:
        read, to_keys = readers[query.sort], _number_keys if query.sort in NUMERIC_FIELDS else _text_keys
        keys: list[Any] = []
        for first in range(0, len(matching), _ROWS_PER_STEP):
            keys += to_keys(list(map(read, matching[first : first + _ROWS_PER_STEP])))
            yield
        order = sorted(range(len(matching)), key=keys.__getitem__, reverse=query.descending)
        matching = [matching[n] for n in order]
    elif query.descending:
        matching = matching[::-1]
    return matching


def _keep(rows: Sequence[R], read: Callable[[R], Any], test: Test) -> Generator[None, None, Sequence[R]]:
    kept: list[R] = []
    for first in range(0, len(rows), _ROWS_PER_STEP):
        step = rows[first : first + _ROWS_PER_STEP]
        kept += compress(step, test(list(map(read, step))))
        yield
    return kept


def _number_keys(values: Iterable[Any]) -> list[float]:
    """Sort keys for numbers; absent values come first."""
    return [-math.inf if value is None else float(value) for value in values]


def _text_keys(values: Sequence[Any]) -> Sequence[str]:
    return values if _are_texts(values) else ["" if value is None else str(value) for value in values]


def page_of(items: Sequence[T], query: Query) -> tuple[Sequence[T], int | None]:
    """The requested page, and the offset of the next one; None on the last page."""
    end = query.offset + query.limit
    return items[query.offset : end], end if end < len(items) else None


def select(
    parameters: Mapping[str, str],
    rows: Sequence[R],
    readers: Readers[R],
    *,
    other_parameters: Sequence[str] = (),
    choices: Choices | None = None,
) -> tuple[Sequence[R], Query]:
    """Parse a query string and apply it. Returns the matching rows in order, and the query. Fields are those with a reader.
    Raises BadRequest."""
    fields = tuple(name for name in readers if name != SEARCH)
    query = parse_query(parameters, fields, other_parameters=other_parameters, choices=choices or {})
    return select_rows(rows, query, readers), query


def list_body(name: str, rows: Sequence[R], query: Query, to_json: Callable[[R], Any]) -> dict[str, Any]:
    """Run:ai's list: the requested page under `name`, and `next` if there are more rows. Only the rows of the page are
    converted."""
    page, next_offset = page_of(rows, query)
    body: dict[str, Any] = {name: [to_json(row) for row in page]}
    return body if next_offset is None else {**body, "next": next_offset}
