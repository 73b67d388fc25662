"""Fails and deletes pods that no kubelet will end, as kube-controller-manager's pod garbage collector does: pods bound to a node that does
not exist, and pods that were deleted before they were bound and are kept by a finalizer.

A Job may wait for the end of such a pod before it makes another one (`podReplacementPolicy: Failed`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Decision,
    Delete,
    DeleteOptions,
    Patch,
    View,
    Write,
)
from rowlock.kinds import NODE, POD, Kind
from rowlock.objects import Key, Object

QUARANTINE = 40.0  # seconds that a node may be missing before its pods are failed


class PodGarbageCollector:
    """One key per node, and one per pod that is deleted unbound. The pods of a node that stays missing are failed, then deleted."""

    name = "pod-garbage-collector"
    kinds: tuple[Kind, ...] = (NODE, POD)

    def __init__(self, quarantine: float = QUARANTINE) -> None:
        self._quarantine = quarantine
        self._missing_since: dict[str, float] = {}
        """Missing node → since when (seconds since the epoch). Lost at a restart, which gives a node more time, never less."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NODE:
            return [Key("", objects.name(change.object))] if change.type != "Modified" else []
        node = objects.dig(change.object, "spec.nodeName")
        if _goes_unbound(change.object) and change.type != "Deleted":
            return [objects.key(change.object)]
        if change.type == "Deleted" or not node or view.get(NODE, "", node) is not None:
            return []
        return [Key("", node)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if key.namespace:
            pod = view.get(POD, *key)
            return Decision((_fail(pod),)) if pod is not None and _goes_unbound(pod) else NOTHING
        pods = [] if view.get(NODE, "", key.name) is not None else _pods_on(view, key.name)
        if not pods:
            self._missing_since.pop(key.name, None)
            return NOTHING
        remaining = self._missing_since.setdefault(key.name, now) + self._quarantine - now
        if remaining > 0:
            return Decision(requeue_after=remaining)
        return Decision(tuple(write for pod in pods for write in _fail_and_delete(pod, now)))


def _pods_on(view: View, node: str) -> list[Object]:
    return [pod for pod in view.all(POD) if objects.dig(pod, "spec.nodeName") == node]


def _goes_unbound(pod: Object) -> bool:
    is_bound = bool(objects.dig(pod, "spec.nodeName"))
    return not is_bound and objects.is_deleting(pod) and objects.phase(pod) not in objects.FINAL_PHASES


def _fail(pod: Object) -> Write:
    """Set the phase of an unbound pod that is being deleted. The pod disappears with its last finalizer."""
    body = {"metadata": {"uid": objects.uid(pod)}, "status": {"phase": "Failed"}}
    return Patch(POD, *objects.key(pod), body, "merge", "status")


def _fail_and_delete(pod: Object, now: float) -> Iterable[Write]:
    if objects.phase(pod) not in objects.FINAL_PHASES:
        yield mark_disrupted(pod, "DeletionByPodGC", "PodGC: node no longer exists", now, phase="Failed")
    yield Delete(POD, *objects.key(pod), DeleteOptions(grace=0, uid=objects.uid(pod)))


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
