"""Helpers of the informer cache: facts about nodes and pod groups."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.scheduling.model.from_objects import LAST_START_ANNOTATION, parse_node


def card_facts(node: Object | None) -> tuple[Any, ...] | None:
    """The fields of a node on which GPU figures depend."""
    if node is None:
        return None
    status = node.get("status") or {}
    return objects.labels(node), status.get("capacity"), status.get("allocatable")


class CardMemory:
    """The memory of one card of each node, in MiB."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, int] = {}  # by node; "" caches the smallest

    def note(self, node: str, before: Object | None, after: Object | None) -> bool:
        """Update a node's cards; False if they did not change. Most writes of nodes are heartbeats."""
        if card_facts(before) == card_facts(after):
            return False
        for name in ("", node):
            self._of_nodes.pop(name, None)
        if after is not None and (parsed := parse_node(after)).gpus:
            self._of_nodes[node] = parsed.gpu_memory
        return True

    def of(self, node: str) -> int:
        """MiB of one card of the node; for "" the smallest of all nodes; 0 if there is none."""
        if "" not in self._of_nodes:
            self._of_nodes[""] = min(self._of_nodes.values(), default=0)
        return self._of_nodes.get(node, 0)


def group_owner(group: Object) -> str:
    """The uid of the job of a pod group: its first owner, controlling or not."""
    owners = objects.meta(group).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def group_order(group: Object) -> tuple[bool, str]:
    """Sort key for the pod groups of one workload: those that have not started come first."""
    return bool(objects.annotations(group).get(LAST_START_ANNOTATION)), objects.name(group)
