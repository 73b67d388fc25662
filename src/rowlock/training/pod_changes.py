"""Changes of pods that no job is concerned by. Pure."""

from __future__ import annotations

from rowlock.api import Change
from rowlock.objects import dig, meta

_METADATA_LOOKED_AT = ("uid", "labels", "ownerReferences", "deletionTimestamp")
"""Of a pod, by a job's operator."""


def is_only_bound(change: Change) -> bool:
    """Has a pod got its node, and else nothing that a job's operator looks at? Every pod does, and no job changes by it."""
    pod, old = change.object, change.old
    if change.type != "Modified" or old is None or dig(old, "spec.nodeName") or not dig(pod, "spec.nodeName"):
        return False
    before, after = ({k: v for k, v in (o.get("status") or {}).items() if k != "conditions"} for o in (old, pod))
    return (
        before == after
        and all(c.get("status") == "True" for c in dig(pod, "status.conditions") or ())
        and all(meta(old).get(part) == meta(pod).get(part) for part in _METADATA_LOOKED_AT)
    )
