"""What a PolicyRule allows, and whether rules cover others: k8s.io/component-helpers/auth/rbac/validation. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from rowlock.authorization.authorizer import Attributes
from rowlock.objects import Object

_ALL = "*"
_ANY_NAME = "\0"
"""Index key of rules without resource names; no object can have this name."""
_FEW_RULES = 16
MOST_PARTS, MOST_COMPARISONS = 5_000, 50_000
"""Limits of an escalation check: single rights in the granted rules, and comparisons of a right with a rule."""
_FIELDS = {
    "apiGroups": "APIGroups", "resources": "Resources", "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames", "verbs": "Verbs",
}  # fmt: skip
"""A rule's fields and their names in a refusal, in the refusal's order."""


class CompiledRule:
    """A PolicyRule with its fields as sets, for fast repeated checks."""

    __slots__ = ("_groups", "_names", "_resources", "_urls", "_verbs")

    def __init__(self, rule: Object) -> None:
        texts = {field: frozenset(rule.get(field) or ()) for field in _FIELDS}
        self._verbs, self._groups, self._resources = texts["verbs"], texts["apiGroups"], texts["resources"]
        self._names, self._urls = texts["resourceNames"], texts["nonResourceURLs"]

    def index_keys(self) -> tuple[Iterable[str], ...]:
        """The values under which `RuleIndex` files the rule: verbs, groups, resources, names."""
        return self._verbs, self._groups, self._resources, self._names or (_ANY_NAME,)

    def allows(self, attributes: Attributes) -> bool:
        """Whether this rule allows the action."""
        verb, group, resource, subresource, _, name, path = attributes
        if verb not in self._verbs and _ALL not in self._verbs:
            return False
        if path:
            return any(_url_covers(url, path) for url in self._urls)
        if group not in self._groups and _ALL not in self._groups:
            return False
        if self._names and name not in self._names:
            return False
        resources = self._resources
        if _ALL in resources or (f"{resource}/{subresource}" if subresource else resource) in resources:
            return True
        return bool(subresource) and f"*/{subresource}" in resources


class RuleIndex:
    """Rules that are checked together. A role may have tens of thousands, so only rules are checked that match the action in one field:
    the field for which the fewest rules match."""

    __slots__ = ("_indexes", "_rules")

    def __init__(self, rules: Iterable[Object]) -> None:
        self._rules = [CompiledRule(rule) for rule in rules]
        self._indexes: tuple[dict[str, list[CompiledRule]], ...] | None = None

    def candidates(self, attributes: Attributes) -> Sequence[CompiledRule]:
        """A superset of the rules that allow the action."""
        if len(self._rules) <= _FEW_RULES or attributes.path:
            return self._rules
        if self._indexes is None:
            self._indexes = self._index()
        resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
        questions = (
            (attributes.verb, _ALL), (attributes.group, _ALL), (resource, _ALL, f"*/{attributes.subresource}"), (attributes.name, _ANY_NAME),
        )  # fmt: skip
        fewest: Sequence[CompiledRule] = self._rules
        for index, texts in zip(self._indexes, questions, strict=True):
            lists = [index[text] for text in texts if text in index]
            if sum(len(rules) for rules in lists) < len(fewest):
                fewest = list(chain.from_iterable(lists))
        return fewest

    def allows(self, attributes: Attributes) -> bool:
        return any(rule.allows(attributes) for rule in self.candidates(attributes))

    def _index(self) -> tuple[dict[str, list[CompiledRule]], ...]:
        indexes: tuple[dict[str, list[CompiledRule]], ...] = ({}, {}, {}, {})
        for rule in self._rules:
            for index, texts in zip(indexes, rule.index_keys(), strict=True):
                for text in texts:
                    index.setdefault(text, []).append(rule)
        return indexes


def _url_covers(owned: str, url: str) -> bool:
    return owned in (_ALL, url) or (owned.endswith("*") and url.startswith(owned.rstrip("*")))


def uncovered_rules(owned: Iterable[Object], granted: Sequence[Object]) -> list[Object]:
    """The rights of `granted`, split into one verb on one resource each, that no `owned` rule allows: upstream's `Covers`. Raises
    TooManyRules."""
    if sum(map(_count_parts, granted)) > MOST_PARTS:
        raise TooManyRules
    index, uncovered, comparisons = RuleIndex(owned), list[Object](), 0
    for part in chain.from_iterable(map(_break_down, granted)):
        question = _question_of(part)
        candidates = index.candidates(question)
        comparisons += len(candidates)
        if comparisons > MOST_COMPARISONS:
            raise TooManyRules
        if not any(rule.allows(question) for rule in candidates):
            uncovered.append(part)
    return uncovered


class TooManyRules(Exception):
    """Comparing these rights with the user's own would take too long."""


def _count_parts(rule: Object) -> int:
    """How many rules `_break_down` yields for one: a rule of a thousand verbs, groups and resources each yields a billion."""
    counts = {field: len(rule.get(field) or ()) for field in _FIELDS}
    things = counts["apiGroups"] * counts["resources"] * max(1, counts["resourceNames"]) + counts["nonResourceURLs"]
    return things * counts["verbs"]


def _question_of(part: Object) -> Attributes:
    """The action that a part of a rule, as `_break_down` yields it, allows."""
    (verb,) = part["verbs"]
    if urls := part.get("nonResourceURLs"):
        return Attributes(verb, path=urls[0])
    resource, _, subresource = part["resources"][0].partition("/")
    if not subresource:
        resource = part["resources"][0]
    return Attributes(verb, part["apiGroups"][0], resource, subresource, name=(part.get("resourceNames") or ("",))[0])


def _break_down(rule: Object) -> Iterator[Object]:
    """Split a rule into rules that allow one action each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                one = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                names = rule.get("resourceNames") or ()
                yield from ({**one, "resourceNames": [name]} for name in names)
                if not names:
                    yield one
    for url in rule.get("nonResourceURLs") or ():
        yield from ({"verbs": [verb], "nonResourceURLs": [url]} for verb in verbs)


def describe_rules(rules: Iterable[Object]) -> str:
    """One rule a line, rules about the same resource merged, as upstream's `CompactRules` and `CompactString` write them."""
    merged: dict[tuple[Any, ...], Object] = {}
    for number, rule in enumerate(rules):
        fields = () if rule.get("nonResourceURLs") else ("apiGroups", "resources", "resourceNames")
        key = tuple(tuple(rule.get(field) or ()) for field in fields) or (number,)
        verbs = merged[key]["verbs"] if key in merged else []
        merged[key] = {**rule, "verbs": [*verbs, *rule["verbs"]]}
    return "\n".join(sorted(map(_describe_rule, merged.values())))


def _describe_rule(rule: Object) -> str:
    parts = [f"{name}:{quote_list(rule[field])}" for field, name in _FIELDS.items() if rule.get(field)]
    return "{" + ", ".join(parts) + "}"


def quote_list(texts: Sequence[str]) -> str:
    """Strings as Go's %q prints a slice of them."""
    return "[" + " ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "]"
