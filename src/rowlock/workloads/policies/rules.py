"""The rules of a policy: checked when it is written, and applied to submits. Leaves are the fields of the table of submit fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from rowlock import quantity
from rowlock.errors import BadRequest, Cause
from rowlock.submit_fields import SUBMIT_FIELDS, paths
from rowlock.workloads.body_fields import BodyErrors, did_you_mean

Tree = Mapping[str, Any]

RULES = ("min", "max", "step", "options", "required", "canEdit")
_LIST_RULES = ("instances", "attributes", "required", "canEdit")
_NUMBERS = frozenset({"int", "float", "quantity", "duration", "gpus"})
_LISTS = frozenset({
    "items", "variables", "secret variables", "credential variables", "field variables", "environment", "pairs", "resources",
    "ports", "volumes", "claims",
})  # fmt: skip


def _leaves(kinds: frozenset[str] | None = None) -> frozenset[str]:
    rows = (row for row in SUBMIT_FIELDS if not row.refuse and (kinds is None or row.kind in kinds))
    return frozenset(path for row in rows for path in paths(row))


LEAVES, LISTS, NUMBERS = _leaves(), _leaves(_LISTS), _leaves(_NUMBERS)
"""Fields that may have rules; those of them that are lists of items; those that are numbers."""


def check_rules(rules: Any, path: str, errors: BodyErrors) -> None:
    """Check a tree of rules at `path` of the body; mistakes are added to `errors`."""
    for field, rule in _walk(rules, path, "", errors):
        known = _LIST_RULES if field in LISTS else RULES
        for name, value in rule.items():
            if name not in known:
                errors.add(f"{path}.{field}.{name}", "unknown", f"there is no such rule.{did_you_mean(name, known)}")
            elif problem := _value_problem(field, name, value):
                errors.add(f"{path}.{field}.{name}", "type", problem)


def _walk(tree: Any, path: str, prefix: str, errors: BodyErrors) -> Iterator[tuple[str, Tree]]:
    """(field, its rules) for each field with rules in the tree."""
    if tree is None:
        return
    if not isinstance(tree, Mapping):
        errors.add(f"{path}.{prefix}".rstrip("."), "type", "must be a JSON object.")
        return
    for name, below in tree.items():
        field = f"{prefix}.{name}" if prefix else str(name)
        if field in LEAVES:
            if isinstance(below, Mapping):
                yield field, below
            elif below is not None:
                errors.add(f"{path}.{field}", "type", f"must be an object of rules: {', '.join(RULES)}.")
        elif any(leaf.startswith(f"{field}.") for leaf in LEAVES):
            yield from _walk(below, path, field, errors)
        else:
            siblings = {leaf.removeprefix(f"{prefix}.").partition(".")[0] for leaf in LEAVES if leaf.startswith(prefix)}
            errors.add(f"{path}.{field}", "unknown", f"there is no such field.{did_you_mean(str(name), siblings)}")


def _value_problem(field: str, name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in ("required", "canEdit"):
        return "" if isinstance(value, bool) else "must be true or false."
    if name in ("min", "max", "step"):
        if field not in NUMBERS:
            return f"is for numbers, and {field} is none."
        return "" if _number(value) is not None else "must be a number, or a quantity such as 100M."
    if name == "options":
        is_list = isinstance(value, list) and all(isinstance(one, Mapping) and "value" in one for one in value)
        return "" if is_list and value else 'must be a list of {"value": …}.'
    return "" if isinstance(value, Mapping) else "must be a JSON object."


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, str):
            return Decimal(quantity.parse(value))
        return Decimal(str(value)) if isinstance(value, int | float) else None
    except (ValueError, InvalidOperation, BadRequest):
        return None


def dig(tree: Any, field: str) -> Any:
    """The value at a dotted field of a tree, or None."""
    for name in field.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def fields_with_rules(rules: Tree) -> list[tuple[str, Tree]]:
    """(field, its rules) for each field of a tree that was checked before."""
    return list(_walk(rules, "", "", BodyErrors()))


def violations(spec: Tree, asked: Tree, defaults: Tree, rules: Tree) -> list[Cause]:
    """The rules that a submit violates. `spec` is its spec with the defaults, `asked` as the submitter wrote it."""
    causes = []
    for field, rule in fields_with_rules(rules):
        value, own, default = dig(spec, field), dig(asked, field), dig(defaults, field)
        for name, problem in _problems(field, value, own, default, rule):
            causes.append(Cause(name, problem, field))
    return causes


def _problems(field: str, value: Any, own: Any, default: Any, rule: Tree) -> Iterator[tuple[str, str]]:
    if rule.get("required") and value in (None, "", [], {}):
        yield "required", "value is required"
    if rule.get("canEdit") is False and own is not None and own != default:
        yield (
            "canEdit",
            "value cannot be edited" + (f": it is {default}" if default is not None else ", and must be left out"),
        )
    if value is None:
        return
    if field in LISTS:
        yield from _list_problems(value, own, default, rule)
        return
    number = _number(value)
    least, most, step = (_number(rule.get(name)) for name in ("min", "max", "step"))
    if number is not None and least is not None and number < least:
        yield "min", f"value must be no less than {rule['min']}"
    if number is not None and most is not None and number > most:
        yield "max", f"value must be no more than {rule['max']}"
    if number is not None and step and (number - (least or 0)) % step:
        yield "step", f"value must be {rule.get('min') or 0} or more by steps of {rule['step']}"
    options = [one["value"] for one in rule.get("options") or ()]
    if options and value not in options:
        yield "options", f"value must be one of {', '.join(str(option) for option in options)}"


def _list_problems(value: Any, own: Any, default: Any, rule: Tree) -> Iterator[tuple[str, str]]:
    """Violations of a list's rules: whether items may be added, which of the policy's items are locked, and rules for items' fields."""
    instances = rule.get("instances") or {}
    of_policy = {_item_name(item): item for item in default or ()}
    added = [_item_name(item) for item in own or () if isinstance(own, list) and _item_name(item) not in of_policy]
    if instances.get("canAdd") is False and added:
        yield "canAdd", f"items cannot be added: leave {', '.join(added)} out"
    for name in instances.get("locked") or ():
        changed = next((item for item in own or () if _item_name(item) == name), None)
        if changed is not None and changed != of_policy.get(name):
            yield "locked", f"the item {name} cannot be changed"
    attributes = rule.get("attributes") or {}
    for item in value if isinstance(value, list) else ():
        for attribute, own_rule in attributes.items():
            if isinstance(own_rule, Mapping) and isinstance(item, Mapping):
                for name, problem in _problems("", item.get(attribute), None, None, own_rule):
                    yield name, f"{attribute} of {_item_name(item)}: {problem}"


def _item_name(item: Any) -> str:
    if not isinstance(item, Mapping):
        return str(item)
    return str(next((item[key] for key in ("name", "claimName", "path", "mountPath", "key") if item.get(key)), item))
