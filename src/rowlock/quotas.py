"""ResourceQuota, decided: what an object costs, which quotas it counts in, and how much of each is used.

Admission asks the first two for every new object (`cluster/api/quotas.py`); the controller `Quotas` writes the third
into `status`, where `kubectl get quota` reads it. On a real cluster the controller manager does that. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from rowlock import kinds, objects
from rowlock.api import NOTHING, Change, Decision, Patch, View
from rowlock.kinds import KINDS, POD, RESOURCE_QUOTA, Kind
from rowlock.objects import Key, Object
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
_NAMED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""What every container must say of itself where a quota limits it."""
_FINISHED = ("Succeeded", "Failed")


def usage(kind: Kind, obj: Object) -> dict[str, Decimal]:
    """What one object costs, by the names that quotas use."""
    one = Decimal(1)
    cost = {f"count/{kind.resource}": one}
    cost.update({name: one for name, counted in COUNTED.items() if counted is kind})
    if kind is kinds.PERSISTENT_VOLUME_CLAIM:
        size = objects.dig(obj, "spec.resources.requests", {}).get("storage")
        return cost if size is None else {**cost, "requests.storage": parse(size)}
    if kind is POD:
        for container in objects.dig(obj, "spec.containers", ()):
            for name, amount in _asked(container).items():
                cost[name] = cost.get(name, Decimal(0)) + amount
    return cost


def _asked(container: dict[str, Any]) -> dict[str, Decimal]:
    resources, asked = container.get("resources") or {}, {}
    for field in ("requests", "limits"):
        for name, amount in (resources.get(field) or {}).items():
            asked[f"{field}.{name}"] = parse(amount)
    for name in ("cpu", "memory"):
        if f"requests.{name}" in asked:
            asked[name] = asked[f"requests.{name}"]
    return asked


def unsaid(pod: Object, hard: dict[str, Any]) -> dict[str, list[str]]:
    """Which containers do not say what a quota limits: their names by resource."""
    found: dict[str, list[str]] = {}
    spec = pod.get("spec") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for name in sorted(_NAMED & hard.keys() - _asked(container).keys()):
            found.setdefault(name, []).append(str(container.get("name")))
    return dict(sorted(found.items()))


# ---------------------------------------------------------------- scopes


def concerns(quota: Object, kind: Kind, obj: Object) -> bool:
    """Whether an object counts in a quota: finished pods do not, and scopes choose among pods."""
    if kind is POD and objects.phase(obj) in _FINISHED:
        return False
    spec = quota.get("spec") or {}
    wanted = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(kind is POD and _within(scope, obj.get("spec") or {}) for scope in wanted)


def _within(scope: dict[str, Any], spec: dict[str, Any]) -> bool:
    name, operator = scope.get("scopeName"), scope.get("operator")
    if name in ("Terminating", "NotTerminating"):
        return bool((spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        everyone = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        asks = any(_NAMED & _asked(container).keys() for container in everyone)
        return bool(asks == (name == "NotBestEffort"))
    if name != "PriorityClass":
        return False
    priority, values = spec.get("priorityClassName"), scope.get("values") or ()
    if operator in ("In", "NotIn"):
        return bool((priority in values) == (operator == "In"))
    return bool(priority) == (operator != "DoesNotExist")


# ---------------------------------------------------------------- what is used


def taken(view: View, quota: Object, kind: Kind) -> dict[str, Decimal]:
    """What the objects of one kind that count in a quota cost together, by the names that quotas use."""
    total: dict[str, Decimal] = {}
    for obj in view.all(kind, objects.namespace(quota)):
        if concerns(quota, kind, obj):
            for name, amount in usage(kind, obj).items():
                total[name] = total.get(name, Decimal(0)) + amount
    return total


def used(view: View, quota: Object) -> dict[str, str]:
    """How much of every limited thing is in use."""
    hard = objects.dig(quota, "spec.hard", {})
    total = dict.fromkeys(hard, Decimal(0))
    for kind in _kinds_of(hard):
        for name, amount in taken(view, quota, kind).items():
            if name in total:
                total[name] += amount
    return {name: shown(name, amount) for name, amount in total.items()}


def _counts(quota: Object, kind: Kind | None) -> bool:
    return kind is not None and kind in _kinds_of(objects.dig(quota, "spec.hard", {}))


def _kinds_of(hard: dict[str, Any]) -> Iterator[Kind]:
    for kind in KINDS:
        if kind.namespaced:
            counted = f"count/{kind.resource}" in hard or any(COUNTED.get(name) is kind for name in hard)
            if counted or kind is POD or (kind is kinds.PERSISTENT_VOLUME_CLAIM and "requests.storage" in hard):
                yield kind


def shown(name: str, amount: Decimal | str) -> str:
    """An amount as quotas write it."""
    return amount if isinstance(amount, str) else render(amount, binary=name.rpartition(".")[2] in _BYTES)


class Quotas:
    """One key per quota: keeps `status` in step with what its namespace holds."""

    name = "quota-usage"
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind.namespaced)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """Quotas of the namespace that count what has changed: the others would be counted anew for nothing."""
        quotas = view.all(RESOURCE_QUOTA, objects.namespace(change.object))
        if not quotas:  # as nearly everywhere
            return ()
        return [objects.key(quota) for quota in quotas if change.kind is RESOURCE_QUOTA or _counts(quota, change.kind)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        quota = view.get(RESOURCE_QUOTA, key.namespace, key.name)
        if quota is None or objects.deleting(quota):
            return NOTHING
        hard = dict(objects.dig(quota, "spec.hard", {}))
        wanted = {"hard": hard, "used": used(view, quota)} if hard else {}
        have = quota.get("status") or {}
        if have == wanted:
            return NOTHING
        gone = {field: {k: None for k in have.get(field) or {}} | wanted.get(field, {}) for field in ("hard", "used")}
        return Decision((Patch(RESOURCE_QUOTA, key.namespace, key.name, {"status": gone}, subresource="status"),))
