"""The rules of where a pod may run: tolerations, affinity, spreading, gates. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_supported,
    required_value,
    subdomain_problems,
)
from rowlock.errors import Cause

Causes = Iterator[Cause]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")


def toleration_causes(toleration: dict[str, Any], path: str) -> Causes:
    key, operator, value = (toleration.get(field) or "" for field in ("key", "operator", "value"))
    for problem in label_key_problems(key) if key else ():
        yield invalid_value(f"{path}.key", key, problem)
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{path}.operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(f"{path}.effect", toleration.get("effect") or "", text)
    if operator in ("", "Equal"):
        if problems := label_value_problems(value):
            yield invalid_value(f"{path}.operator", value, ";".join(problems))
    elif operator != "Exists":
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    elif value:
        yield invalid_value(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    if toleration.get("effect") not in (None, "", *TAINT_EFFECTS):
        yield not_supported(f"{path}.effect", toleration["effect"], TAINT_EFFECTS)


def affinity_causes(affinity: dict[str, Any], path: str) -> Causes:
    nodes = affinity.get("nodeAffinity") or {}
    if _REQUIRED in nodes:
        where, terms = f"{path}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms", nodes[_REQUIRED].get("nodeSelectorTerms")
        if not terms:
            yield required_value(where, "must have at least one node selector term")
        for index, term in enumerate(terms or ()):
            yield from _expression_causes(term, f"{where}[{index}]", _node_operator_causes)
            yield from _label_value_causes(term, f"{where}[{index}]")
            yield from _field_causes(term, f"{where}[{index}]")
    for index, preference in enumerate(nodes.get(_PREFERRED) or ()):
        where = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _weight_causes(preference, where)
        yield from _expression_causes(preference.get("preference") or {}, f"{where}.preference", _node_operator_causes)
        yield from _field_causes(preference.get("preference") or {}, f"{where}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            yield from _pod_term_causes(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, preference in enumerate(pods.get(_PREFERRED) or ()):
            where = f"{path}.{kind}.{_PREFERRED}[{index}]"
            yield from _weight_causes(preference, where)
            yield from _pod_term_causes(preference.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _weight_causes(preference: dict[str, Any], path: str) -> Causes:
    if not 1 <= preference.get("weight", 0) <= 100:
        yield invalid_value(f"{path}.weight", preference.get("weight", 0), "must be in the range 1-100")


def _label_value_causes(term: dict[str, Any], path: str) -> Causes:
    """Values that no node's label can have: an error where they must match, a warning where they should."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        for number, value in enumerate(expression.get("values") or ()):
            for problem in label_value_problems(value):
                yield invalid_value(f"{path}.matchExpressions[{index}].values[{number}]", value, problem)


def _field_causes(term: dict[str, Any], path: str) -> Causes:
    """Nodes by their fields, of which the name is the only one."""
    for index, expression in enumerate(term.get("matchFields") or ()):
        where, values = f"{path}.matchFields[{index}]", expression.get("values") or ()
        if expression.get("operator") not in ("In", "NotIn"):
            yield invalid_value(f"{where}.operator", expression.get("operator") or "", "not a valid selector operator")
        elif len(values) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required_value(f"{where}.values", text)
        if expression.get("key") != "metadata.name":
            yield invalid_value(f"{where}.key", expression.get("key") or "", "not a valid field selector key")
            continue
        for number, value in enumerate(values):
            for problem in subdomain_problems(value):
                yield invalid_value(f"{where}.values[{number}]", value, problem)


def _label_key_causes(rule: dict[str, Any], path: str) -> Causes:
    """Labels of the pod itself that join the selector."""
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if rule.get(field) and rule.get("labelSelector") is None:
            yield forbidden_field(f"{path}.{field}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(rule.get(field) or ()):
            for problem in label_key_problems(key):
                yield invalid_value(f"{path}.{field}[{index}]", key, problem)


def _pod_term_causes(term: dict[str, Any], path: str) -> Causes:
    for field in ("labelSelector", "namespaceSelector"):
        yield from selector_causes(term.get(field) or {}, f"{path}.{field}")
    for name in term.get("namespaces") or ():
        for problem in dns_label_problems(name):
            yield invalid_value(f"{path}.namespace", name, problem)
    yield from _label_key_causes(term, path)
    key = term.get("topologyKey") or ""
    if not key:
        yield required_value(f"{path}.topologyKey", "can not be empty")
    for problem in label_key_problems(key):
        yield invalid_value(f"{path}.topologyKey", key, problem)


def selector_causes(selector: dict[str, Any], path: str) -> Causes:
    """A label selector as objects hold it."""
    for key, value in (selector.get("matchLabels") or {}).items():
        for problem in label_key_problems(key):
            yield invalid_value(f"{path}.matchLabels", key, problem)
        for problem in label_value_problems(value):
            yield invalid_value(f"{path}.matchLabels", value, problem)
    yield from _expression_causes(selector, path, _label_operator_causes)


def _expression_causes(term: dict[str, Any], path: str, operator_causes: Any) -> Causes:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        yield from operator_causes(expression.get("operator") or "", expression.get("values") or (), where)
        for problem in label_key_problems(expression.get("key") or ""):
            yield invalid_value(f"{where}.key", expression.get("key") or "", problem)


def _label_operator_causes(operator: str, values: Sequence[str], path: str) -> Causes:
    if operator in ("In", "NotIn"):
        if not values:
            yield required_value(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_field(
                f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
    else:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")


def _node_operator_causes(operator: str, values: Sequence[str], path: str) -> Causes:
    if operator not in ("Gt", "Lt"):
        yield from _label_operator_causes(operator, values, path)
    elif len(values) != 1:
        yield required_value(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")


def spread_causes(spreads: Sequence[dict[str, Any]], path: str) -> Causes:
    seen: dict[tuple[str, str], int] = {}
    reported: set[tuple[str, str]] = set()
    for index, spread in enumerate(spreads):
        where, key, action = f"{path}[{index}]", spread.get("topologyKey") or "", spread.get("whenUnsatisfiable")
        if spread.get("maxSkew", 0) <= 0:
            yield invalid_value(f"{where}.maxSkew", spread.get("maxSkew", 0), "must be greater than zero")
        if not key:
            yield required_value(f"{where}.topologyKey", "can not be empty")
        if action not in _UNSATISFIABLE_ACTIONS:
            yield not_supported(f"{where}.whenUnsatisfiable", action, _UNSATISFIABLE_ACTIONS)
        pair = key, str(action)
        if pair in seen and pair not in reported:  # said once, of the first
            reported.add(pair)
            field = f"{path}[{seen[pair]}].{{topologyKey, whenUnsatisfiable}}"
            yield duplicate_value(field, f"{{{key}, {action}}}")
        seen.setdefault(pair, index)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if spread.get(field) not in (None, "Honor", "Ignore"):
                yield not_supported(f"{where}.{field}", spread[field], ("Honor", "Ignore"))
        yield from _label_key_causes(spread, where)
        yield from selector_causes(spread.get("labelSelector") or {}, f"{where}.labelSelector")


def gate_causes(gates: Sequence[dict[str, Any]], path: str) -> Causes:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        for problem in label_key_problems(name):
            yield invalid_value(f"{path}[{index}]", name, problem)
        if name in seen:
            yield duplicate_value(f"{path}[{index}]", name)
        seen.add(name)


def gate_update_causes(before: dict[str, Any], after: dict[str, Any]) -> Causes:
    """Gates only go; while one is there, the pod may be told more narrowly where to run."""
    old = [gate.get("name") for gate in before.get("schedulingGates") or ()]
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
        if any(need not in (new_terms[index].get(field) or ()) for field in fields for need in term.get(field) or ()):
            yield invalid_value(
                f"{path}[{index}]", new_terms[index], "only additions are allowed (no mutations or deletions)"
            )


def _required_node_terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required_affinity = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required_affinity.get("nodeSelectorTerms") or ())
