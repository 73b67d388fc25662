"""Rules about the placement of pods: tolerations, affinity, topology spread, scheduling gates. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import (
    Causes,
    are_label_keys,
    are_label_values,
    duplicate_value,
    forbidden_field,
    invalid_value,
    invalid_values,
    label_key_problems,
    label_value_problems,
    not_supported,
    required_value,
    subdomain_problems,
)
from rowlock.errors import Cause


@rule
def labels(values: dict[str, str], _: Scope) -> Causes:
    """Check the keys and values of labels; upstream's messages do not name the key."""
    if are_label_keys(values) and are_label_values(values.values()):
        return
    for key, value in values.items():
        if problems := label_key_problems(key):
            yield from invalid_values("", key, problems)
        if problems := label_value_problems(value):
            yield from invalid_values("", value, problems)


@rule
def toleration(toleration: dict[str, Any], _: Scope) -> Causes:
    key, operator, value = (toleration.get(field) or "" for field in ("key", "operator", "value"))
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(".operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(".effect", toleration.get("effect") or "", text)
    if operator in ("", "Equal"):
        if problems := label_value_problems(value):
            yield invalid_value(".operator", value, ";".join(problems))
    elif operator != "Exists":
        yield not_supported(".operator", operator, ("Equal", "Exists"))
    elif value:
        yield invalid_value(".operator", value, "value must be empty when `operator` is 'Exists'")


# ---------------------------------------------------------------- selectors


@rule
def label_operator(requirement: dict[str, Any], _: Scope) -> Causes:
    """Check the operator of a label selector and its number of values."""
    operator, values = requirement.get("operator") or "", requirement.get("values")
    if operator in ("In", "NotIn"):
        if not values:
            yield required_value(".values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid_value(".operator", operator, "not a valid selector operator")
    elif values:
        yield forbidden_field(".values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")


@rule
def node_operator(requirement: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    if requirement.get("operator") not in ("Gt", "Lt"):
        return label_operator(requirement, scope)
    text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
    return () if len(requirement.get("values") or ()) == 1 else (required_value(".values", text),)


@rule
def node_field(requirement: dict[str, Any], _: Scope) -> Causes:
    """Check a node field selector; `metadata.name` is the only field."""
    operator, key, values = requirement.get("operator"), requirement.get("key"), requirement.get("values") or ()
    if operator not in ("In", "NotIn"):
        yield invalid_value(".operator", operator or "", "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required_value(".values", text)
    if key != "metadata.name":
        yield invalid_value(".key", key or "", "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from invalid_values(f".values[{index}]", value, subdomain_problems(value))


@rule
def match_label_keys(rule: dict[str, Any], _: Scope) -> Causes:
    """Check `matchLabelKeys` and `mismatchLabelKeys`, which need a label selector."""
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if rule.get(field) and rule.get("labelSelector") is None:
            yield forbidden_field(f".{field}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(rule.get(field) or ()):
            yield from invalid_values(f".{field}[{index}]", key, label_key_problems(key))


@rule
def spread_pair(spread: dict[str, Any], scope: Scope) -> Causes:
    """Report a duplicate pair of topology key and action, with upstream's pseudo field name."""
    spec, notes = scope.outer.struct, scope.outer.notes
    if "spreads" not in notes:
        notes["spreads"] = Counter(map(_spread_pair, spec["topologySpreadConstraints"]))
    notes["spreads"][pair := _spread_pair(spread)] -= 1
    if notes["spreads"][pair]:
        yield duplicate_value(".{topologyKey, whenUnsatisfiable}", pair)


def _spread_pair(spread: dict[str, Any]) -> str:
    return f"{{{spread.get('topologyKey') or ''}, {spread.get('whenUnsatisfiable') or ''}}}"


def gate_update_causes(before: dict[str, Any], after: dict[str, Any]) -> Causes:
    """Gates may only be removed; while a pod has one, its node selection may be narrowed, but not otherwise changed."""
    old = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate.get("name") not in old:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden_field(f"spec.schedulingGates[{index}].name", text)
    if not old:
        return
    labels = after.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid_value("spec.nodeSelector", labels or None, text)
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    old_terms, new_terms = (_required_node_terms(spec) for spec in (before, after))
    if old_terms and len(old_terms) != len(new_terms):
        yield invalid_value(path, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, term in enumerate(old_terms):
        fields = ("matchExpressions", "matchFields")
        if any(lacks_some(term.get(field) or (), new_terms[index].get(field) or ()) for field in fields):
            yield invalid_value(
                f"{path}[{index}]", new_terms[index], "only additions are allowed (no mutations or deletions)"
            )


def lacks_some(old: Iterable[Any], new: Iterable[Any]) -> bool:
    """Whether an old value is missing among the new ones. They are compared as JSON texts: there may be tens of thousands."""
    known = {json.dumps(value, sort_keys=True) for value in new}
    return any(json.dumps(value, sort_keys=True) not in known for value in old)


def _required_node_terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required_affinity = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required_affinity.get("nodeSelectorTerms") or ())
