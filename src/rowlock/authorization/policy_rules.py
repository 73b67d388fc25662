"""What a PolicyRule allows, and whether rules cover others: k8s.io/component-helpers/auth/rbac/validation. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rowlock.authorization.authorizer import Attributes
from rowlock.objects import Object

_ALL = "*"
_FIELDS = {
    "apiGroups": "APIGroups", "resources": "Resources", "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames", "verbs": "Verbs",
}  # fmt: skip
"""A rule's fields, and what a refusal calls them, in its order."""


class CompiledRule:
    """A PolicyRule, made ready to be asked often."""

    __slots__ = ("_groups", "_names", "_resources", "_urls", "_verbs")

    def __init__(self, rule: Object) -> None:
        texts = {field: frozenset(rule.get(field) or ()) for field in _FIELDS}
        self._verbs, self._groups, self._resources = texts["verbs"], texts["apiGroups"], texts["resources"]
        self._names, self._urls = texts["resourceNames"], texts["nonResourceURLs"]

    def allows(self, attributes: Attributes) -> bool:
        """Whether this rule alone allows it."""
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


def _url_covers(owned: str, url: str) -> bool:
    return owned in (_ALL, url) or (owned.endswith("*") and url.startswith(owned.rstrip("*")))


def uncovered_rules(owned: Sequence[Object], granted: Iterable[Object]) -> list[Object]:
    """What of `granted` is in none of the `owned` rules, one verb of one resource at a time: upstream's `Covers`."""
    return [part for rule in granted for part in _break_down(rule) if not any(_covers(own, part) for own in owned)]


def _break_down(rule: Object) -> Iterator[Object]:
    """Rules that each allow one thing."""
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


def _covers(owner: Object, part: Object) -> bool:
    """`part` is about one thing."""

    def has_all(field: str) -> bool:
        mine = owner.get(field) or ()
        return _ALL in mine or all(text in mine for text in part.get(field) or ())

    own_names, names = owner.get("resourceNames"), part.get("resourceNames")
    if own_names and (not names or any(name not in own_names for name in names)):
        return False
    own_urls = owner.get("nonResourceURLs") or ()
    urls_covered = all(any(_url_covers(own, url) for own in own_urls) for url in part.get("nonResourceURLs") or ())
    resources = owner.get("resources") or ()
    resources_covered = has_all("resources") or all(
        resource in resources or ("/" in resource and f"*/{resource.partition('/')[2]}" in resources)
        for resource in part.get("resources") or ()
    )
    return has_all("verbs") and has_all("apiGroups") and resources_covered and urls_covered


def describe_rules(rules: Iterable[Object]) -> str:
    """One rule a line, those about the same resource in one, as upstream's `CompactRules` and `CompactString` write them."""
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
    """As Go prints strings with %q."""
    return "[" + " ".join(json.dumps(text, ensure_ascii=False) for text in texts) + "]"
