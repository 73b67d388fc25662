"""The rules of ResourceQuotas: what can be limited, by how much, and in which scopes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock.apiserver.validation.field_errors import invalid_value, required_value
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.quantity import parse

Causes = Iterator[Cause]

_SCOPES = (
    "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating",
    "VolumeAttributesClass",
)  # fmt: skip
_COUNTED_RESOURCES = frozenset(
    "pods services replicationcontrollers resourcequotas secrets configmaps persistentvolumeclaims"
    " services.nodeports services.loadbalancers".split()
)
_MEASURED_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_POD_RESOURCES = frozenset("pods cpu memory requests.cpu requests.memory limits.cpu limits.memory".split())
_CLAIM_RESOURCES = frozenset({"persistentvolumeclaims", "requests.storage"})
_RESOURCES_BY_SCOPE = {
    **dict.fromkeys(_SCOPES, _POD_RESOURCES), "BestEffort": frozenset({"pods"}), "VolumeAttributesClass": _CLAIM_RESOURCES,
}  # fmt: skip
"""What can be counted in a scope: pods without requests, for one, have no CPU to count."""
_EXISTS_ONLY_SCOPES = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity",
)  # fmt: skip
_EXISTS_ONLY_TEXT = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
    " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _is_standard_resource(name: str) -> bool:
    """A resource that quotas know by itself: no domain, no `count/`."""
    return name in _COUNTED_RESOURCES or name.removeprefix("requests.").removeprefix("limits.") in _MEASURED_RESOURCES


def quota_causes(obj: Object) -> Causes:
    spec = obj.get("spec") or {}
    for name, amount in (spec.get("hard") or {}).items():
        field, number = f"spec.hard[{name}]", parse(amount)
        if "/" not in name and not _is_standard_resource(name) and "hugepages-" not in name:
            yield invalid_value(field, name, "must be a standard resource type or fully qualified")
            yield invalid_value(field, name, "must be a standard resource for quota")
        if number < 0:
            yield invalid_value(field, amount, "must be greater than or equal to 0")
        if (name in _COUNTED_RESOURCES or name.startswith("count/")) and number != number.to_integral_value():
            yield invalid_value(field, amount, "must be an integer")
    yield from _scope_causes(spec)
    yield from _selector_causes(spec)


def _scope_causes(spec: dict[str, Any]) -> Causes:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid_value("spec.scopes", scopes, "unsupported scope")
        for _ in _out_of_scope_resources(scope, spec):
            yield invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid_value("spec.scopes", scopes, "conflicting scopes")


def _out_of_scope_resources(scope: str, spec: dict[str, Any]) -> Iterator[str]:
    """The standard resources of a quota whose objects cannot be in that scope."""
    allowed = _RESOURCES_BY_SCOPE.get(scope)
    for name in sorted(spec.get("hard") or {}):
        if allowed is not None and _is_standard_resource(name) and name not in allowed:
            yield name


def _selector_causes(spec: dict[str, Any]) -> Causes:
    terms = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    path = "spec.scopeSelector.matchExpressions"
    names = ("ScopeName", "scopeName"), ("Operator", "operator"), ("Values", "values")
    selector = {"MatchExpressions": [{go_name: term.get(name) for go_name, name in names} for term in terms]}
    for term in terms:
        scope, operator, values = term.get("scopeName"), term.get("operator"), term.get("values") or []
        if scope not in _SCOPES:
            yield invalid_value(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _out_of_scope_resources(scope, spec):
            yield invalid_value(path, selector, "unsupported scope applied to resource")
        if scope in _EXISTS_ONLY_SCOPES and operator != "Exists":
            yield invalid_value(f"{path}.operator", operator, _EXISTS_ONLY_TEXT)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required_value(f"{path}.values", text)
        elif operator not in ("Exists", "DoesNotExist"):
            yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid_value(f"{path}.values", values, text)
