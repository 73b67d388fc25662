"""What all `GET .../telemetry` routes share: one current figure, of everything or per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from rowlock import objects
from rowlock.errors import BadRequest
from rowlock.rest.call import RestCall
from rowlock.rest.inventory.clusters import check_cluster_id
from rowlock.workloads.body_fields import did_you_mean

T = TypeVar("T")


class Question(NamedTuple):
    """A parsed query: the type, the groups in the caller's spelling, and the other parameters."""

    type: str
    groups: tuple[str, ...]
    query: dict[str, str]


def parse_question(call: RestCall, types: Iterable[str], groups: Iterable[str], *others: str) -> Question:
    """Parse the query of a request; the allowed `groups` are in lower case. Raises BadRequest."""
    query = call.validate_query("telemetryType", "clusterId", "groupBy", *others)
    check_cluster_id(call, query.get("clusterId", ""))
    name, known = query.get("telemetryType", ""), list(types)
    if name not in known:
        raise BadRequest(
            f"telemetryType: there is no {name[:60]!r} here.{did_you_mean(name[:60], known)} Known: {', '.join(known)}."
        )
    words, allowed = tuple(filter(None, query.get("groupBy", "").split(","))), list(groups)
    for word in words:
        if word.lower() not in allowed:
            raise BadRequest(f"groupBy: there is no group {word[:60]!r}; there are {', '.join(allowed)}.")
    return Question(name, words, query)


def answer(
    call: RestCall,
    question: Question,
    figures: Iterable[tuple[T, Decimal | int]],
    groups: Mapping[str, Callable[[T], str]],
) -> dict[str, Any]:
    """The answer: the sum over all figures, or one sum per group."""
    words = question.groups
    sums: dict[tuple[str, ...], Decimal] = {} if words else {(): Decimal(0)}
    for one, figure in figures:
        key = tuple(groups[word.lower()](one) for word in words)
        sums[key] = sums.get(key, Decimal(0)) + figure
    values = [
        {"value": f"{total:f}", "groups": [{"key": word, "value": part} for word, part in zip(words, key, strict=True)]}
        for key, total in sorted(sums.items())
    ]
    return {"type": question.type, "timestamp": objects.timestamp(call.context.clock()), "values": values}
