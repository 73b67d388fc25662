"""The admission plugin ResourceQuota: a namespace's limits on object counts and on the resources of its pods. Pure.

`system/resource_quota.py` computes the usage of an object and the quotas that it counts in.
"""

from __future__ import annotations

from decimal import Decimal

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.errors import Forbidden, forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.system.resource_quota import format_amount, kind_usage, quota_matches, unspecified_resources, usage


def check_quotas(kind: Kind, obj: Object, view: View | None) -> None:
    """Raise Forbidden when the new object exceeds a quota of the namespace, or lacks the requests that a quota limits."""
    if view is None:
        return
    for quota in view.all(kinds.RESOURCE_QUOTA, objects.namespace(obj)):
        hard = objects.dig(quota, "spec.hard", {})
        if not quota_matches(quota, kind, obj):
            continue
        if kind is kinds.POD and (missing := unspecified_resources(obj, hard)):
            missing_text = "; ".join(f"{name} for: {','.join(containers)}" for name, containers in missing.items())
            why = f"failed quota: {objects.name(quota)}: must specify {missing_text}"
            raise forbidden(kind.plural, objects.name(obj), why, kind.group)
        requested = usage(kind, obj)
        limited = sorted(set(hard) & set(requested))
        used_by_name = kind_usage(view, quota, kind) if limited else {}
        exceeded = []
        for name in limited:
            used = used_by_name.get(name, Decimal(0))
            if used + requested[name] > parse(hard[name]):
                exceeded.append((name, requested[name], used, str(hard[name])))
        if exceeded:
            raise _exceeded_error(kind, obj, quota, exceeded)


def _exceeded_error(
    kind: Kind, obj: Object, quota: Object, exceeded: list[tuple[str, Decimal, Decimal, str]]
) -> Forbidden:
    def format_amounts(which: int) -> str:
        return ",".join(f"{row[0]}={format_amount(row[0], row[which])}" for row in exceeded)

    text = f"exceeded quota: {objects.name(quota)}, requested: {format_amounts(1)}, used: {format_amounts(2)}, limited: {format_amounts(3)}"
    return forbidden(kind.plural, objects.name(obj), text, kind.group)
