"""What the informer cache asks of a node, of a pod group, and of a list of everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import objects
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.objects import Key, Object


def card_facts(node: Object | None) -> tuple[Any, ...] | None:
    """The fields of a node on which GPU figures depend."""
    if node is None:
        return None
    status = node.get("status") or {}
    return objects.labels(node), status.get("capacity"), status.get("allocatable")


def group_owner(group: Object) -> str:
    """The uid of the job of a pod group: its first owner, controlling or not."""
    owners = objects.meta(group).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


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
