"""The query of a list: filterBy, sortBy, search, offset and limit, parsed once and applied to rows.

Rows are anything; the caller gives a table of readers, one per field, and `SEARCH` for the text that a search looks
through. Only the fields that a query names are read, so that a page of 50 out of 10,000 costs a page. Unknown
parameters and fields are refused with the nearest known name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rowlock.errors import BadRequest
from rowlock.workloads.fields import nearest

FIELDS = (
    "type", "name", "clusterId", "projectId", "projectName", "departmentId", "departmentName", "createdAt",
    "deletedAt", "submittedBy", "phase", "completedAt", "nodepool", "distributedFramework", "allocatedGPU",
    "phaseUpdatedAt", "category", "priority", "priorityClassName", "id", "namespace",
)  # fmt: skip
"""What workloads can be filtered and sorted by."""
NUMBERS = frozenset({"allocatedGPU", "priority"})
_TERM = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|=@|!@|=\^|=\$|<|>)\s*(.*?)\s*")
LIMIT, MOST = 50, 500


R = TypeVar("R")
T = TypeVar("T")
Readers = Mapping[str, Callable[[R], Any]]
SEARCH = "search"
"""The reader that a table has beside its fields: the lower-case text of everything that is searched."""

_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "==": lambda have, want: have == want,
    "!=": lambda have, want: have != want,
    "=@": lambda have, want: want.lower() in have.lower(),
    "!@": lambda have, want: want.lower() not in have.lower(),
    "=^": lambda have, want: have.lower().startswith(want.lower()),
    "=$": lambda have, want: have.lower().endswith(want.lower()),
}


@dataclass(frozen=True, slots=True)
class Filter:
    field: str
    operator: str
    value: str

    def accepts(self, have: Any) -> bool:
        """Whether a field's value is as asked for."""
        if self.operator in ("<=", ">="):
            return _ordered(have, self.operator, self.value)
        text = "" if have is None else str(have).lower() if isinstance(have, bool) else str(have)
        return _OPERATORS[self.operator](text, self.value)


def _ordered(have: Any, operator: str, bound: str) -> bool:
    if have is None:
        return False
    if isinstance(have, int | float):
        try:
            number = float(bound)
        except ValueError:
            raise BadRequest(f"filterBy: {bound!r} is not a number.") from None
        return have <= number if operator == "<=" else have >= number
    return str(have) <= bound if operator == "<=" else str(have) >= bound


@dataclass(frozen=True, slots=True)
class Query:
    filters: tuple[Filter, ...] = ()
    sort: str = ""
    descending: bool = False
    search: str = ""
    offset: int = 0
    limit: int = LIMIT


def parse(parameters: Mapping[str, str], fields: Sequence[str] = FIELDS, *, also: Sequence[str] = ()) -> Query:
    """A list's query. Raises BadRequest for what it does not know; `also` names parameters others read."""
    known = ("filterBy", "sortBy", "sortOrder", "search", "offset", "limit", *also)
    for name in parameters:
        if name.rstrip("?") and name not in known:
            raise BadRequest(f"there is no query parameter {name!r}.{nearest(name, known)}")
    sort = parameters.get("sortBy", "")
    if sort and sort not in fields:
        raise BadRequest(f"sortBy: there is no field {sort!r}.{nearest(sort, fields)}")
    order = parameters.get("sortOrder", "asc")
    if order not in ("asc", "desc"):
        raise BadRequest(f"sortOrder must be asc or desc, but is {order!r}.")
    offset, limit = _count(parameters, "offset", 0), _count(parameters, "limit", LIMIT)
    if not 1 <= limit <= MOST:
        raise BadRequest(f"limit must be between 1 and {MOST}, but is {limit}.")
    filters = tuple(_filters(parameters.get("filterBy", ""), fields))
    return Query(filters, sort, order == "desc", parameters.get("search", "").strip().lower(), offset, limit)


def _filters(text: str, fields: Sequence[str]) -> Iterable[Filter]:
    for part in filter(None, (p.strip() for p in text.split(","))):
        found = _TERM.fullmatch(part)
        if not found or found[2] in ("<", ">"):
            raise BadRequest(
                f"filterBy: {part!r} is not FIELD OPERATOR VALUE, where OPERATOR is one of ==, !=, <=, >=, =@, !@, =^, =$."
            )
        if found[1] not in fields:
            raise BadRequest(f"filterBy: there is no field {found[1]!r}.{nearest(found[1], fields)}")
        yield Filter(found[1], found[2], found[3])


def _count(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise BadRequest(f"{name} must be a whole number no less than 0, but is {text!r}.")
    return int(text)


def select(rows: Sequence[R], query: Query, readers: Readers[R]) -> Sequence[R]:
    """The rows that match, in order. Without sortBy: as they come."""
    found = rows
    for one in query.filters:
        read = readers[one.field]
        found = [row for row in found if one.accepts(read(row))]
    if query.search:
        read = readers[SEARCH]
        found = [row for row in found if query.search in read(row)]
    if query.sort:
        read, key = readers[query.sort], _number if query.sort in NUMBERS else _text
        values = [key(read(row)) for row in found]
        order = sorted(range(len(found)), key=values.__getitem__, reverse=query.descending)
        found = [found[n] for n in order]
    elif query.descending:
        found = found[::-1]
    return found


def _number(value: Any) -> float:
    """What is absent comes first."""
    return -math.inf if value is None else float(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def page(items: Sequence[T], query: Query) -> tuple[Sequence[T], int | None]:
    """The page that the query asks for and the offset of the next one, None at the end."""
    end = query.offset + query.limit
    return items[query.offset : end], end if end < len(items) else None
