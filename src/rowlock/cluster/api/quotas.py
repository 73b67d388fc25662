"""ResourceQuota at the door: a namespace's limits on counts of objects and on what its pods ask for. Pure.

What an object costs and which quotas it counts in is decided in `rowlock/quotas.py`.
"""

from __future__ import annotations

from decimal import Decimal

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.errors import Forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.quotas import concerns, shown, taken, unsaid, usage


def check(kind: Kind, obj: Object, view: View | None) -> None:
    """Raises Forbidden when a quota of the namespace has no room for the new object, or cannot tell."""
    if view is None:
        return
    for quota in view.all(kinds.RESOURCE_QUOTA, objects.namespace(obj)):
        hard = objects.dig(quota, "spec.hard", {})
        if not concerns(quota, kind, obj):
            continue
        if kind is kinds.POD and (missing := unsaid(obj, hard)):
            told = "; ".join(f"{name} for: {','.join(containers)}" for name, containers in missing.items())
            raise _refused(kind, obj, f"failed quota: {objects.name(quota)}: must specify {told}")
        asked = usage(kind, obj)
        limited = sorted(set(hard) & set(asked))
        there = taken(view, quota, kind) if limited else {}
        over = []
        for name in limited:
            used = there.get(name, Decimal(0))
            if used + asked[name] > parse(hard[name]):
                over.append((name, asked[name], used, str(hard[name])))
        if over:
            raise _exceeded(kind, obj, quota, over)


def _exceeded(kind: Kind, obj: Object, quota: Object, over: list[tuple[str, Decimal, Decimal, str]]) -> Forbidden:
    def listed(which: int) -> str:
        return ",".join(f"{row[0]}={shown(row[0], row[which])}" for row in over)

    text = f"exceeded quota: {objects.name(quota)}, requested: {listed(1)}, used: {listed(2)}, limited: {listed(3)}"
    return _refused(kind, obj, text)


def _refused(kind: Kind, obj: Object, why: str) -> Forbidden:
    details = {"name": objects.name(obj), "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return Forbidden(f'{kind.resource} "{objects.name(obj)}" is forbidden: {why}', details=details)
