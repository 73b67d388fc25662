"""A ClusterRole with an aggregationRule has the rules of all ClusterRoles that its selectors choose.

As `ClusterRoleAggregationController` does: roles sorted by name, each rule once. An aggregationRule with thousands of selectors is
processed in pieces, one per turn. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import is_

import msgspec

from rowlock import objects
from rowlock.api import NOTHING, Change, Decision, Patch, View
from rowlock.kinds import CLUSTER_ROLE, Kind
from rowlock.objects import Key, Object
from rowlock.selectors import from_label_selector

SELECTORS_PER_TURN = 250
"""Selectors of one role that a turn parses and matches with all roles: about 20 ms."""
_encode = msgspec.json.Encoder(order="sorted").encode


class Aggregation:
    """Collects the rules of a role with an aggregationRule from `roles`, which must be sorted by name."""

    def __init__(self, role: Object, roles: list[Object]) -> None:
        self.role, self.roles = role, roles
        self.rules: list[Object] = []
        self._seen = set[bytes]()
        own_name = objects.name(role)
        self._candidates = [(objects.labels(one), one) for one in roles if objects.name(one) != own_name]
        self._selectors = iter(objects.dig(role, "aggregationRule.clusterRoleSelectors") or ())

    def is_of(self, role: Object, roles: list[Object]) -> bool:
        """Whether this aggregation was started with exactly this role and these roles."""
        return self.role is role and len(roles) == len(self.roles) and all(map(is_, roles, self.roles))

    def advance(self, count: int) -> bool:
        """Process the next `count` selectors. True when all are done."""
        done = 0
        for entry in islice(self._selectors, count):
            done += 1
            if (selector := from_label_selector(entry)) is None:
                continue
            left: list[tuple[dict[str, str], Object]] = []
            for labels, one in self._candidates:
                if selector.matches(labels):
                    self._add_rules(one.get("rules") or ())  # a role that matched once adds nothing more
                else:
                    left.append((labels, one))
            self._candidates = left
        return done < count

    def _add_rules(self, rules: Iterable[Object]) -> None:
        for rule in rules:
            if (known := _encode(rule)) not in self._seen:
                self._seen.add(known)
                self.rules.append(rule)


def aggregate_rules(role: Object, roles: Iterable[Object]) -> list[Object]:
    """The aggregated rules of the role, computed in one go."""
    aggregation = Aggregation(role, list(roles))
    while not aggregation.advance(SELECTORS_PER_TURN):
        pass
    return aggregation.rules


class RoleAggregation:
    """One key per ClusterRole. A change of any role may change every role that aggregates."""

    name = "clusterrole-aggregation"
    kinds: tuple[Kind, ...] = (CLUSTER_ROLE,)

    def __init__(self) -> None:
        self._under_way: dict[str, Aggregation] = {}
        """Name of a role → its unfinished aggregation."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [objects.key(role) for role in view.all(CLUSTER_ROLE) if role.get("aggregationRule")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        begun, role = self._under_way.pop(key.name, None), view.get(CLUSTER_ROLE, "", key.name)
        if role is None or not role.get("aggregationRule"):
            return NOTHING
        roles = list(view.all(CLUSTER_ROLE))
        aggregation = begun if begun is not None and begun.is_of(role, roles) else Aggregation(role, roles)
        if not aggregation.advance(SELECTORS_PER_TURN):
            self._under_way[key.name] = aggregation
            return Decision((), 0.0)
        if aggregation.rules == (role.get("rules") or []):
            return NOTHING
        patch = {"metadata": {"resourceVersion": role["metadata"]["resourceVersion"]}, "rules": aggregation.rules}
        return Decision((Patch(CLUSTER_ROLE, "", key.name, patch),))
