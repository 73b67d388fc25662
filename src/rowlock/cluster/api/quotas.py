"""ResourceQuota at the door: a namespace's limits on counts of objects and on what its pods ask for. Pure."""

from __future__ import annotations

from decimal import Decimal

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.errors import Forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse, render

COUNTED = {
    "pods": kinds.POD,
    "services": kinds.SERVICE,
    "configmaps": kinds.CONFIG_MAP,
    "secrets": kinds.SECRET,
    "persistentvolumeclaims": kinds.PERSISTENT_VOLUME_CLAIM,
    "resourcequotas": kinds.RESOURCE_QUOTA,
}
_BYTES = ("memory", "storage", "ephemeral-storage")


def check(kind: Kind, obj: Object, view: View | None) -> None:
    """Raises Forbidden when a quota of the namespace has no room for the new object."""
    if view is None:
        return
    for quota in view.all(kinds.RESOURCE_QUOTA, objects.namespace(obj)):
        hard = objects.dig(quota, "spec.hard", {})
        asked = usage(kind, obj)
        over = []
        for name in sorted(set(hard) & set(asked)):
            used = sum((usage(kind, other).get(name, Decimal(0)) for other in _charged(kind, view, obj)), Decimal(0))
            if used + asked[name] > parse(hard[name]):
                over.append((name, asked[name], used, str(hard[name])))
        if over:
            raise _exceeded(kind, obj, quota, over)


def _charged(kind: Kind, view: View, obj: Object) -> list[Object]:
    """Who counts already: finished pods do not."""
    found = view.all(kind, objects.namespace(obj))
    return [o for o in found if kind is not kinds.POD or objects.phase(o) not in ("Succeeded", "Failed")]


def usage(kind: Kind, obj: Object) -> dict[str, Decimal]:
    """What one object costs, by the names that quotas use."""
    one = Decimal(1)
    cost = {f"count/{kind.resource}": one}
    cost.update({name: one for name, counted in COUNTED.items() if counted is kind})
    if kind is not kinds.POD:
        return cost
    for container in objects.dig(obj, "spec.containers", ()):
        resources = container.get("resources") or {}
        for field in ("requests", "limits"):
            for name, amount in (resources.get(field) or {}).items():
                key = f"{field}.{name}"
                cost[key] = cost.get(key, Decimal(0)) + parse(amount)
    for name in ("cpu", "memory"):
        if f"requests.{name}" in cost:
            cost[name] = cost[f"requests.{name}"]
    return cost


def _exceeded(kind: Kind, obj: Object, quota: Object, over: list[tuple[str, Decimal, Decimal, str]]) -> Forbidden:
    def listed(which: int) -> str:
        return ",".join(f"{row[0]}={_shown(row[0], row[which])}" for row in over)

    text = f"exceeded quota: {objects.name(quota)}, requested: {listed(1)}, used: {listed(2)}, limited: {listed(3)}"
    details = {"name": objects.name(obj), "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return Forbidden(f'{kind.resource} "{objects.name(obj)}" is forbidden: {text}', details=details)


def _shown(name: str, amount: Decimal | str) -> str:
    return amount if isinstance(amount, str) else render(amount, binary=name.rpartition(".")[2] in _BYTES)
