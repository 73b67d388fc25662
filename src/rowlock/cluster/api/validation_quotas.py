"""The rules of ResourceQuotas: what can be limited, by how much, and in which scopes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock.cluster.api.wording import invalid_value, required
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.quantity import parse

Causes = Iterator[Cause]

_SCOPES = (
    "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating",
    "VolumeAttributesClass",
)  # fmt: skip
_COUNTED = frozenset(
    "pods services replicationcontrollers resourcequotas secrets configmaps persistentvolumeclaims"
    " services.nodeports services.loadbalancers".split()
)
_MEASURED = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_PODS = frozenset("pods cpu memory requests.cpu requests.memory limits.cpu limits.memory".split())
_CLAIMS = frozenset({"persistentvolumeclaims", "requests.storage"})
_SCOPED = {
    **dict.fromkeys(_SCOPES, _PODS), "BestEffort": frozenset({"pods"}), "VolumeAttributesClass": _CLAIMS,
}  # fmt: skip
"""What can be counted in a scope: pods without requests, for one, have no CPU to count."""
_WITHOUT_VALUES = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity",
)  # fmt: skip
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
    " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _standard(name: str) -> bool:
    """A resource that quotas know by itself: no domain, no `count/`."""
    return name in _COUNTED or name.removeprefix("requests.").removeprefix("limits.") in _MEASURED


def quota_causes(obj: Object) -> Causes:
    spec = obj.get("spec") or {}
    for name, amount in (spec.get("hard") or {}).items():
        field, number = f"spec.hard[{name}]", parse(amount)
        if "/" not in name and not _standard(name) and "hugepages-" not in name:
            yield invalid_value(field, name, "must be a standard resource type or fully qualified")
            yield invalid_value(field, name, "must be a standard resource for quota")
        if number < 0:
            yield invalid_value(field, amount, "must be greater than or equal to 0")
        if (name in _COUNTED or name.startswith("count/")) and number != number.to_integral_value():
            yield invalid_value(field, amount, "must be an integer")
    yield from _scope_causes(spec)
    yield from _selector_causes(spec)


def _scope_causes(spec: dict[str, Any]) -> Causes:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid_value("spec.scopes", scopes, "unsupported scope")
        for _ in _strangers(scope, spec):
            yield invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid_value("spec.scopes", scopes, "conflicting scopes")


def _strangers(scope: str, spec: dict[str, Any]) -> Iterator[str]:
    """The standard resources of a quota whose objects cannot be in that scope."""
    counted = _SCOPED.get(scope)
    for name in sorted(spec.get("hard") or {}):
        if counted is not None and _standard(name) and name not in counted:
            yield name


def _selector_causes(spec: dict[str, Any]) -> Causes:
    terms = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    path = "spec.scopeSelector.matchExpressions"
    names = ("ScopeName", "scopeName"), ("Operator", "operator"), ("Values", "values")
    whole = {"MatchExpressions": [{shown: term.get(name) for shown, name in names} for term in terms]}
    for term in terms:
        scope, operator, values = term.get("scopeName"), term.get("operator"), term.get("values") or []
        if scope not in _SCOPES:
            yield invalid_value(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _strangers(scope, spec):
            yield invalid_value(path, whole, "unsupported scope applied to resource")
        if scope in _WITHOUT_VALUES and operator != "Exists":
            yield invalid_value(f"{path}.operator", operator, _ONLY_EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", text)
        elif operator not in ("Exists", "DoesNotExist"):
            yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid_value(f"{path}.values", values, text)
