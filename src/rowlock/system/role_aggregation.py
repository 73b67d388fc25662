"""A ClusterRole with an aggregationRule has the rules of all ClusterRoles that its selectors choose.

As `ClusterRoleAggregationController` does: sorted by name, each rule once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock import objects
from rowlock.api import NOTHING, Change, Decision, Patch, View
from rowlock.kinds import CLUSTER_ROLE, Kind
from rowlock.objects import Key, Object
from rowlock.selectors import from_label_selector


def aggregate_rules(role: Object, roles: Iterable[Object]) -> list[Object]:
    """The rules that a role with an aggregationRule has among these, which are sorted by name."""
    chosen: list[Object] = []
    candidates = [one for one in roles if objects.name(one) != objects.name(role)]
    for entry in objects.dig(role, "aggregationRule.clusterRoleSelectors") or ():
        selector = from_label_selector(entry)
        for candidate in candidates:
            if selector is not None and selector.matches(objects.labels(candidate)):
                chosen += [rule for rule in candidate.get("rules") or () if rule not in chosen]
    return chosen


class RoleAggregation:
    """One key per ClusterRole; any change of one may be a change of all that aggregate."""

    name = "clusterrole-aggregation"
    kinds: tuple[Kind, ...] = (CLUSTER_ROLE,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [objects.key(role) for role in view.all(CLUSTER_ROLE) if role.get("aggregationRule")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        role = view.get(CLUSTER_ROLE, "", key.name)
        if role is None or not role.get("aggregationRule"):
            return NOTHING
        rules = aggregate_rules(role, view.all(CLUSTER_ROLE))
        if rules == (role.get("rules") or []):
            return NOTHING
        patch = {"metadata": {"resourceVersion": role["metadata"]["resourceVersion"]}, "rules": rules}
        return Decision((Patch(CLUSTER_ROLE, "", key.name, patch),))
