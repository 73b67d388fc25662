"""Quotas of projects and departments: converts Run:ai's `resources` to and from the amounts of a KAI Queue.

A Queue counts GPUs, millicores and megabytes; -1 means unlimited. Unset amounts are unlimited here, unlike in KAI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.workloads.body_fields import Fields
from rowlock.workloads.compute import format_number
from rowlock.workloads.figures.resources import json_number

UNLIMITED = -1
RANKS = {
    "very-low": 70, "low": 80, "medium-low": 90, "medium": 100, "medium-high": 110, "high": 120, "very-high": 130,
}  # fmt: skip
"""Run:ai's ranks of projects and departments → queue priorities; the middle one is the default, as in KAI."""
DEFAULT_RANK = "medium"
_MEGABYTES = {"": Decimal(1), "MB": Decimal(1), "Mib": Decimal(2**20) / 10**6, "GB": Decimal(1000)}
_RESOURCES = ("gpu", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one resource: the guaranteed quota, the hard limit, and the weight for resources over quota."""

    quota: Decimal = Decimal(UNLIMITED)
    limit: Decimal = Decimal(UNLIMITED)
    weight: Decimal = Decimal(1)

    def to_json(self) -> dict[str, int | float]:
        """The fields of a Queue. All are written, because KAI takes an absent limit as zero."""
        return {
            "quota": json_number(self.quota),
            "limit": json_number(self.limit),
            "overQuotaWeight": json_number(self.weight),
        }


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a project or department; `rank` is its queue's priority."""

    gpu: Bounds = Bounds()
    cpu: Bounds = Bounds()
    memory: Bounds = Bounds()
    rank: int = RANKS[DEFAULT_RANK]

    def queue_fields(self) -> dict[str, Any]:
        """The fields of the Queue's spec for this quota."""
        resources = {name: getattr(self, name).to_json() for name in ("cpu", "memory", "gpu")}
        return {"resources": resources} | ({"priority": self.rank} if self.rank != RANKS[DEFAULT_RANK] else {})


def parse_resources(top: Fields, name: str = "resources") -> Quota:
    """Parse `resources`, a list of node pools with at most one entry, because quotas count over all node pools."""
    pools = top.items(name)
    if len(pools) > 1:
        top.add_error(name, "max", 'quotas count over all node pools: give one item, for the node pool "default".')
    return _parse_pool(pools[0]) if pools else Quota()


def _parse_pool(item: Fields) -> Quota:
    item.allow_only("nodePool", *_RESOURCES, "priority")
    pool = item.object("nodePool")
    pool.allow_only("id", "name")
    if {pool.text("id"), pool.text("name")} - {"", "default"}:
        pool.add_error("id", "unsupported", 'quotas count over all node pools: name the node pool "default", or none.')
    bounds = {resource: _parse_bounds(item.object(resource), resource) for resource in _RESOURCES}
    return Quota(**bounds, rank=RANKS[item.choice("priority", *RANKS) or DEFAULT_RANK])


def _parse_bounds(body: Fields, resource: str) -> Bounds:
    allowed = ("deserved", "limit", "overQuotaWeight", *(("units",) if resource == "memory" else ()))
    body.allow_only(*allowed)
    unit = _MEGABYTES[body.choice("units", *filter(None, _MEGABYTES))] if resource == "memory" else Decimal(1)
    quota, limit = (_parse_amount(body, name, unit) for name in ("deserved", "limit"))
    weight = _parse_amount(body, "overQuotaWeight", Decimal(1))
    if quota > 0 and 0 <= limit < quota:
        body.add_error(
            "limit",
            "min",
            f"must be no less than deserved ({format_number(quota)}), or -1 for unlimited, but is {format_number(limit)}.",
        )
    return Bounds(quota, limit, Decimal(1) if body.get("overQuotaWeight") is None else weight)


def _parse_amount(body: Fields, name: str, unit: Decimal) -> Decimal:
    amount = body.number(name)
    if amount is None:
        return Decimal(UNLIMITED)
    if amount < 0 and amount != UNLIMITED:
        body.add_error(name, "min", f"must be no less than 0, or -1 for unlimited, but is {amount:g}.")
    return Decimal(UNLIMITED) if amount < 0 else Decimal(str(amount)) * unit


def resources_json(queue: Object | None) -> list[dict[str, Any]]:
    """Run:ai's `resources` of a project or department: one item, for the node pool `default`, which stands for all."""
    return [
        {
            "nodePool": {"id": "default", "name": "default"},
            "gpu": _bounds_json(queue, "gpu"),
            "cpu": _bounds_json(queue, "cpu"),
            "memory": {**_bounds_json(queue, "memory"), "units": "MB"},
            "priority": rank_name(queue),
        }
    ]


def rank_name(queue: Object | None) -> str:
    """The highest rank whose priority does not exceed the queue's."""
    priority = (queue or {}).get("spec", {}).get("priority")
    at_most = [
        name for name, value in RANKS.items() if value <= (RANKS[DEFAULT_RANK] if priority is None else priority)
    ]
    return at_most[-1] if at_most else next(iter(RANKS))


def _bounds_json(queue: Object | None, resource: str) -> dict[str, int | float]:
    defaults = {
        "deserved": ("quota", UNLIMITED),
        "limit": ("limit", UNLIMITED),
        "overQuotaWeight": ("overQuotaWeight", 1),
    }
    return {ours: _read_bound(queue, resource, theirs, default) for ours, (theirs, default) in defaults.items()}


def _read_bound(queue: Object | None, resource: str, name: str, default: int) -> int | float:
    return json_number(Decimal(str(objects.dig(queue or {}, f"spec.resources.{resource}.{name}", default))))


def total_resources_json(queue: Object | None) -> dict[str, int | float]:
    """Run:ai's `totalResources`: the quotas over all node pools."""
    return {f"{resource}Quota": _read_bound(queue, resource, "quota", UNLIMITED) for resource in _RESOURCES}


def quota_status_json(queue: Object | None) -> dict[str, Any]:
    """The scheduler's last counts, in Run:ai's units: GPUs, millicores, MB. `fairShare` is a field of rowlock's."""
    figures = objects.dig(queue or {}, "status", {})
    return {
        name: _usage(figures.get(name) or {})
        for name in ("allocated", "allocatedNonPreemptible", "requested", "fairShare")
    }


def _usage(amounts: Mapping[str, Any]) -> dict[str, float]:
    units = {"gpu": ("nvidia.com/gpu", "1"), "cpu": ("cpu", "0.001"), "memory": ("memory", "1000000")}
    return {ours: float(parse(amounts.get(name, 0)) / Decimal(unit)) for ours, (name, unit) in units.items()}
