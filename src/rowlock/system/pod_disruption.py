"""The condition `DisruptionTarget` of a pod that a controller is about to delete, with the controller's reason."""

from __future__ import annotations

from typing import Any

from rowlock import objects
from rowlock.api import Patch
from rowlock.kinds import POD
from rowlock.objects import Object

_NOT_AT_WORK = ("Pending", "Succeeded", "Failed")


def mark_evicted(pod: Object, now: float) -> Patch | None:
    """The patch that an eviction request applies before it deletes the pod; None for a pod that does not run or is being deleted."""
    if objects.is_deleting(pod) or objects.phase(pod) in _NOT_AT_WORK:
        return None
    return mark_disrupted(pod, "EvictionByEvictionAPI", "Eviction API: evicting", now)


def mark_disrupted(pod: Object, reason: str, message: str, now: float, **status: Any) -> Patch:
    """The write that adds the condition, and sets other fields of the pod's status beside it."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": objects.timestamp(now),
    }
    other_conditions = [c for c in objects.dig(pod, "status.conditions", ()) if c.get("type") != condition["type"]]
    fields = {**status, "conditions": [*other_conditions, condition]}
    return Patch(POD, *objects.key(pod), {"metadata": {"uid": objects.uid(pod)}, "status": fields}, "merge", "status")
