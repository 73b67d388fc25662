"""The taint `node.kubernetes.io/unschedulable` follows `kubectl cordon`, as in the node lifecycle controller."""

from __future__ import annotations

from collections.abc import Iterable

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Decision,
    Patch,
    View,
)
from rowlock.kinds import NODE, Kind
from rowlock.objects import Key

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


class UnschedulableTaint:
    """One key per node."""

    name = "unschedulable-taint"
    kinds: tuple[Kind, ...] = (NODE,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (objects.key(change.object),)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        node = view.get(NODE, "", key.name)
        if node is None:
            return NOTHING
        spec = node.get("spec") or {}
        taints = list(spec.get("taints") or ())
        other_taints = [t for t in taints if t.get("key") != UNSCHEDULABLE_TAINT]
        if bool(spec.get("unschedulable")) == (len(other_taints) < len(taints)):
            return NOTHING
        if spec.get("unschedulable"):
            other_taints.append(
                {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": objects.timestamp(now)}
            )
        patch = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": other_taints or None},
        }
        return Decision((Patch(NODE, "", key.name, patch),))
