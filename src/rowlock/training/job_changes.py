"""Which jobs a change concerns, which changes of pods concern none, and how often a large job is decided on. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rowlock.api import Change, Create, Decision
from rowlock.kinds import Kind
from rowlock.objects import Key, controller_of, dig, meta, namespace

_METADATA_LOOKED_AT = ("uid", "labels", "ownerReferences", "deletionTimestamp")
"""Metadata of a pod that job operators read."""
_LARGE_JOB_PODS = 128
_SETTLE_PER_POD = 0.00025
"""Seconds: a job of a thousand pods is decided on four times a second at most."""


def owner_keys(kind: Kind, change: Change) -> Iterator[Key]:
    """Keys of the objects of this kind that control the changed object, now or before the change; a key may come twice."""
    for obj in (change.object, change.old):
        owner = controller_of(obj) if obj else None
        if owner and owner.get("kind") == kind.name and str(owner.get("apiVersion", "")).startswith(kind.group):
            yield Key(namespace(change.object), str(owner["name"]))


def is_only_bound(change: Change) -> bool:
    """Whether the change of a pod is only its bind, without anything that a job operator reads. Such changes can be skipped."""
    pod, old = change.object, change.old
    if change.type != "Modified" or old is None or dig(old, "spec.nodeName") or not dig(pod, "spec.nodeName"):
        return False
    before, after = ({k: v for k, v in (o.get("status") or {}).items() if k != "conditions"} for o in (old, pod))
    return (
        before == after
        and all(c.get("status") == "True" for c in dig(pod, "status.conditions") or ())
        and all(meta(old).get(part) == meta(pod).get(part) for part in _METADATA_LOOKED_AT)
    )


def pace_decision(decision: Decision, pod_count: int) -> Decision:
    """The decision about a job of so many pods, which takes some 20 µs for each of them: of a large job, changes of a while are decided on
    together. One that creates pods goes on at once, since it may create the first of many only."""
    if pod_count < _LARGE_JOB_PODS or any(isinstance(write, Create) for write in decision.writes):
        return decision
    return replace(decision, settle=pod_count * _SETTLE_PER_POD)
