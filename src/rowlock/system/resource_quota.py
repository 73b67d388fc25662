"""ResourceQuota, decided: what an object costs, which quotas it counts in, and how much of each is used.

Admission uses the first two for every new object (`apiserver/admission/resource_quota.py`). `ResourceQuotaController` writes the third into
`status`, for `kubectl get quota`, as kube-controller-manager does. Pure.
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

COUNTED_KINDS = {
    "pods": kinds.POD,
    "services": kinds.SERVICE,
    "configmaps": kinds.CONFIG_MAP,
    "secrets": kinds.SECRET,
    "persistentvolumeclaims": kinds.PERSISTENT_VOLUME_CLAIM,
    "resourcequotas": kinds.RESOURCE_QUOTA,
}
_BYTE_RESOURCES = ("memory", "storage", "ephemeral-storage")
_COMPUTE_RESOURCES = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Resources that every container must specify where a quota limits them."""


def usage(kind: Kind, obj: Object) -> dict[str, Decimal]:
    """What one object adds to each resource name that quotas use."""
    count = Decimal(1)
    cost = {f"count/{kind.resource}": count}
    cost.update({name: count for name, counted in COUNTED_KINDS.items() if counted is kind})
    if kind is kinds.PERSISTENT_VOLUME_CLAIM:
        size = objects.dig(obj, "spec.resources.requests", {}).get("storage")
        return cost if size is None else {**cost, "requests.storage": parse(size)}
    if kind is POD:
        for container in objects.dig(obj, "spec.containers", ()):
            for name, amount in _container_usage(container).items():
                cost[name] = cost.get(name, Decimal(0)) + amount
    return cost


def _container_usage(container: dict[str, Any]) -> dict[str, Decimal]:
    resources, amounts = container.get("resources") or {}, {}
    for field in ("requests", "limits"):
        for name, amount in (resources.get(field) or {}).items():
            amounts[f"{field}.{name}"] = parse(amount)
    for name in ("cpu", "memory"):
        if f"requests.{name}" in amounts:
            amounts[name] = amounts[f"requests.{name}"]
    return amounts


def unspecified_resources(pod: Object, hard: dict[str, Any]) -> dict[str, list[str]]:
    """Names of containers that do not specify a resource that the quota limits, by resource."""
    containers_by_resource: dict[str, list[str]] = {}
    spec = pod.get("spec") or {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for name in sorted(_COMPUTE_RESOURCES & hard.keys() - _container_usage(container).keys()):
            containers_by_resource.setdefault(name, []).append(str(container.get("name")))
    return dict(sorted(containers_by_resource.items()))


# ---------------------------------------------------------------- scopes


def quota_matches(quota: Object, kind: Kind, obj: Object) -> bool:
    """Whether an object counts in a quota: finished pods do not, and scopes choose among pods."""
    if kind is POD and objects.phase(obj) in objects.FINAL_PHASES:
        return False
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(kind is POD and _matches_scope(scope, obj.get("spec") or {}) for scope in scopes)


def _matches_scope(scope: dict[str, Any], spec: dict[str, Any]) -> bool:
    name, operator = scope.get("scopeName"), scope.get("operator")
    if name in ("Terminating", "NotTerminating"):
        return bool((spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        has_requests = any(_COMPUTE_RESOURCES & _container_usage(container).keys() for container in containers)
        return bool(has_requests == (name == "NotBestEffort"))
    if name != "PriorityClass":
        return False
    priority, values = spec.get("priorityClassName"), scope.get("values") or ()
    if operator in ("In", "NotIn"):
        return bool((priority in values) == (operator == "In"))
    return bool(priority) == (operator != "DoesNotExist")


# ---------------------------------------------------------------- what is used


def kind_usage(view: View, quota: Object, kind: Kind) -> dict[str, Decimal]:
    """Total usage of the objects of one kind that count in a quota, by the resource names that quotas use."""
    total: dict[str, Decimal] = {}
    for obj in view.all(kind, objects.namespace(quota)):
        if quota_matches(quota, kind, obj):
            for name, amount in usage(kind, obj).items():
                total[name] = total.get(name, Decimal(0)) + amount
    return total


def quota_usage(view: View, quota: Object) -> dict[str, str]:
    """The quota's `status.used`: the amount in use of each resource in `spec.hard`."""
    hard = objects.dig(quota, "spec.hard", {})
    total = dict.fromkeys(hard, Decimal(0))
    for kind in _counted_kinds(hard):
        for name, amount in kind_usage(view, quota, kind).items():
            if name in total:
                total[name] += amount
    return {name: format_amount(name, amount) for name, amount in total.items()}


def _counts_kind(quota: Object, kind: Kind | None) -> bool:
    return kind is not None and kind in _counted_kinds(objects.dig(quota, "spec.hard", {}))


def _counted_kinds(hard: dict[str, Any]) -> Iterator[Kind]:
    for kind in KINDS:
        if kind.namespaced:
            counted = f"count/{kind.resource}" in hard or any(COUNTED_KINDS.get(name) is kind for name in hard)
            if counted or kind is POD or (kind is kinds.PERSISTENT_VOLUME_CLAIM and "requests.storage" in hard):
                yield kind


def format_amount(name: str, amount: Decimal | str) -> str:
    """An amount as quotas write it."""
    return amount if isinstance(amount, str) else render(amount, binary=name.rpartition(".")[2] in _BYTE_RESOURCES)


class ResourceQuotaController:
    """One key per quota: keeps `status` in step with what its namespace holds."""

    name = "quota-usage"
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind.namespaced)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The namespace's quotas that count the changed kind. Recounting the others would be wasted work."""
        quotas = view.all(RESOURCE_QUOTA, objects.namespace(change.object))
        if not quotas:  # the common case
            return ()
        return [
            objects.key(quota) for quota in quotas if change.kind is RESOURCE_QUOTA or _counts_kind(quota, change.kind)
        ]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        quota = view.get(RESOURCE_QUOTA, key.namespace, key.name)
        if quota is None or objects.is_deleting(quota):
            return NOTHING
        hard = dict(objects.dig(quota, "spec.hard", {}))
        status = {"hard": hard, "used": quota_usage(view, quota)} if hard else {}
        current = quota.get("status") or {}
        if current == status:
            return NOTHING
        patch = {
            field: {k: None for k in current.get(field) or {}} | status.get(field, {}) for field in ("hard", "used")
        }
        return Decision((Patch(RESOURCE_QUOTA, key.namespace, key.name, {"status": patch}, subresource="status"),))
