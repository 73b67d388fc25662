"""Rules of ResourceQuotas: which resources can be limited, the amounts, and the scopes. Pure."""

from __future__ import annotations

from typing import Any

from rowlock.apiserver.validation.containers import STANDARD_RESOURCES
from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import Causes, invalid_value, required_value
from rowlock.quantity import parse

_COUNTED_RESOURCES = frozenset(
    "pods services replicationcontrollers resourcequotas secrets configmaps persistentvolumeclaims"
    " services.nodeports services.loadbalancers".split()
)
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_POD_RESOURCES = frozenset("pods cpu memory requests.cpu requests.memory limits.cpu limits.memory".split())
_RESOURCES_BY_SCOPE = {
    **dict.fromkeys(("CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating"), _POD_RESOURCES),
    "PriorityClass": _POD_RESOURCES,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""Scope → the resources that can be limited in it; BestEffort pods, for example, have no CPU requests to count."""
_EXISTS_ONLY_TEXT = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
    " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _is_standard_resource(name: str) -> bool:
    """Whether it is a built-in resource of quotas: without a domain or `count/`."""
    measured = name.removeprefix("requests.").removeprefix("limits.")
    return name in _COUNTED_RESOURCES or measured in STANDARD_RESOURCES or measured == "storage"


@rule
def quota_amounts(amounts: dict[str, Any], _: Scope) -> Causes:
    for name, amount in amounts.items():
        field, number = f"[{name}]", parse(amount)
        if "/" not in name and not _is_standard_resource(name) and "hugepages-" not in name:
            yield invalid_value(field, name, "must be a standard resource type or fully qualified")
            yield invalid_value(field, name, "must be a standard resource for quota")
        if number < 0:
            yield invalid_value(field, amount, "must be greater than or equal to 0")
        if (name in _COUNTED_RESOURCES or name.startswith("count/")) and number != number.to_integral_value():
            yield invalid_value(field, amount, "must be an integer")


@rule
def quota_scopes(spec: dict[str, Any], _: Scope) -> Causes:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _RESOURCES_BY_SCOPE:
            yield invalid_value(".scopes", scopes, "unsupported scope")
        for _name in _out_of_scope_resources(scope, spec):
            yield invalid_value(".scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid_value(".scopes", scopes, "conflicting scopes")


def _out_of_scope_resources(scope: str, spec: dict[str, Any]) -> list[str]:
    """The built-in resources of a quota that cannot be limited in that scope."""
    allowed, hard = _RESOURCES_BY_SCOPE.get(scope), spec.get("hard") or {}
    return [name for name in hard if allowed is not None and _is_standard_resource(name) and name not in allowed]


@rule
def quota_term(term: dict[str, Any], outer: Scope) -> Causes:
    """Check one term of a scope selector; upstream's messages do not give its index."""
    scope, operator, values = term.get("scopeName") or "", term.get("operator"), term.get("values") or []
    if scope not in _RESOURCES_BY_SCOPE:
        yield invalid_value(".scopeName", scope, "unsupported scope")
    for _ in _out_of_scope_resources(scope, outer.outer.struct):
        yield invalid_value("", outer.struct, "unsupported scope applied to resource")
    if (
        scope not in ("", "PriorityClass", "VolumeAttributesClass")
        and scope in _RESOURCES_BY_SCOPE
        and operator != "Exists"
    ):
        yield invalid_value(".operator", operator, _EXISTS_ONLY_TEXT)
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required_value(".values", text)
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid_value(".operator", operator, "not a valid selector operator")
    elif values:
        text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        yield invalid_value(".values", values, text)
