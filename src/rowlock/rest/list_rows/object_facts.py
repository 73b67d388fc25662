"""What the informer cache asks of a node, of a pod group, and of a list of everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import objects
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.objects import Key, Object
from rowlock.scheduling.model.from_objects import LAST_START_ANNOTATION, parse_node


def card_facts(node: Object | None) -> tuple[Any, ...] | None:
    """The fields of a node on which GPU figures depend."""
    if node is None:
        return None
    status = node.get("status") or {}
    return objects.labels(node), status.get("capacity"), status.get("allocatable")


class CardMemory:
    """MiB of the cards of each node."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, int] = {}  # by node; "": the smallest, once somebody asked

    def note(self, node: str, before: Object | None, after: Object | None) -> bool:
        """Note a node's cards. False where they are the same as before: most writes are heartbeats."""
        if card_facts(before) == card_facts(after):
            return False
        for name in ("", node):
            self._of_nodes.pop(name, None)
        if after is not None and (parsed := parse_node(after)).gpus:
            self._of_nodes[node] = parsed.gpu_memory
        return True

    def of(self, node: str) -> int:
        """Of one card of the node; for "" of the smallest of all nodes; 0 when there is none."""
        if "" not in self._of_nodes:
            self._of_nodes[""] = min(self._of_nodes.values(), default=0)
        return self._of_nodes.get(node, 0)


def group_owner(group: Object) -> str:
    """The uid of the job of a pod group: its first owner, controlling or not."""
    owners = objects.meta(group).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def group_order(group: Object) -> tuple[bool, str]:
    """Among the pod groups of one workload: those that have not started come first."""
    return bool(objects.annotations(group).get(LAST_START_ANNOTATION)), objects.name(group)


async def differences(
    known: Mapping[Key, Object], state: Mapping[Key, Object], budget: TurnBudget
) -> list[tuple[Key, Object | None]]:
    """What makes the new state of the known one: objects that are new or changed, then None for each that is gone. Neither may
    change meanwhile; others have their turns."""
    found: list[tuple[Key, Object | None]] = []
    for key, obj in state.items():
        await budget.pause_if_due()
        if not objects.is_same_version(known.get(key), obj):
            found.append((key, obj))
    return [*found, *((key, None) for key in known if key not in state)]
