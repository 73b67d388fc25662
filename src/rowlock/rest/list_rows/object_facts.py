"""What the informer cache asks of a node, and of a pod group."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.objects import Object


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
