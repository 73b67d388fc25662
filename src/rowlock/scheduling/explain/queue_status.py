"""A queue's status: what it holds, what it requests and its fair share, as Kubernetes quantities.

KAI's fields (`allocated`, `allocatedNonPreemptible`, `requested`, `childQueues`) and one of ours, `fairShare`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rowlock import api, quantity
from rowlock.kinds import QUEUE
from rowlock.scheduling.model.gang_state import QueueState
from rowlock.scheduling.model.resources import ResourceVector
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.policy.usage import RESOURCES, QueueUsage

USAGE_TOLERANCE = 0.0005
"""Fractions of the cluster that differ by less count as equal."""


def to_quantities(amount: ResourceVector) -> dict[str, str]:
    """Millicores, bytes and hundredths of GPUs as canonical quantities."""
    cpu, memory, gpu = amount
    return {
        "cpu": quantity.render(Decimal(cpu) / 1000),
        "memory": quantity.render(Decimal(memory), binary=True),
        "nvidia.com/gpu": quantity.render(round(Decimal(gpu) / 100, 4)),
    }


def queue_status_fields(q: QueueState) -> dict[str, Any]:
    """The status of a KAI Queue object by this cycle's figures; amounts are Kubernetes quantities."""
    fields: dict[str, Any] = {
        "allocated": to_quantities(q.allocated),
        "allocatedNonPreemptible": to_quantities(q.allocated_non_preemptible),
        "requested": to_quantities(q.requested),
        "fairShare": to_quantities(q.fair_share),
    }
    if q.children:
        fields["childQueues"] = sorted(c.queue.name for c in q.children)
    return fields


def usage_writes(usage: QueueUsage, session: Session, view: api.View) -> Iterator[api.Write]:
    """Writes that save the queues' usage where it differs from the saved one, or where that is old."""
    for name in session.queues:
        stored, current = view.get(QUEUE, "", name), usage.saved_status(name)
        saved = (stored or {}).get("status", {}).get("usage") or {}
        differs = any(abs(saved.get(r, 0.0) - current[r]) > USAGE_TOLERANCE for r in RESOURCES)
        is_outdated = current["at"] - saved.get("at", 0.0) > usage.half_life / 20
        if stored is not None and (differs or (is_outdated and any(current[r] > USAGE_TOLERANCE for r in RESOURCES))):
            yield api.Patch(QUEUE, "", name, {"status": {"usage": current}}, subresource="status")


def status_writes(session: Session, view: api.View, max_writes: int) -> Iterator[api.Write]:
    """At most `max_writes` writes for the queues whose status is outdated."""
    for name, state in session.queues.items():
        if max_writes <= 0:
            return
        stored = view.get(QUEUE, "", name)
        desired = queue_status_fields(state)
        if stored is None or all((stored.get("status") or {}).get(k) == v for k, v in desired.items()):
            continue
        max_writes -= 1
        yield api.Patch(QUEUE, "", name, {"status": desired}, subresource="status")
