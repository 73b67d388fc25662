"""A queue's status: what it holds, what it asks for and what it may expect, as Kubernetes quantities.

KAI's fields (`allocated`, `allocatedNonPreemptible`, `requested`, `childQueues`) and one of ours, `fairShare`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rowlock import api, quantity
from rowlock.kinds import QUEUE
from rowlock.scheduling.amounts import Vector
from rowlock.scheduling.usage import RESOURCES, Usage
from rowlock.scheduling.world import QueueState, World

TOLD_APART = 0.0005
"""Parts of the cluster that are the same within this."""


def quantities(amount: Vector) -> dict[str, str]:
    """Millicores, bytes and hundredths of GPUs as canonical quantities."""
    cpu, memory, gpu = amount
    return {
        "cpu": quantity.render(Decimal(cpu) / 1000),
        "memory": quantity.render(Decimal(memory), binary=True),
        "nvidia.com/gpu": quantity.render(Decimal(gpu) / 100),
    }


def status(q: QueueState) -> dict[str, Any]:
    found: dict[str, Any] = {
        "allocated": quantities(q.counted),
        "allocatedNonPreemptible": quantities(q.fixed),
        "requested": quantities(q.demand),
        "fairShare": quantities(q.fair),
    }
    if q.children:
        found["childQueues"] = sorted(c.queue.name for c in q.children)
    return found


def usages(usage: Usage, world: World, view: api.View) -> Iterator[api.Write]:
    """Save what queues used lately, where it differs from what was saved, or that was saved long ago."""
    for name in world.queues:
        stored, wanted = view.get(QUEUE, "", name), usage.status(name)
        saved = (stored or {}).get("status", {}).get("usage") or {}
        differs = any(abs(saved.get(r, 0.0) - wanted[r]) > TOLD_APART for r in RESOURCES)
        old = wanted["at"] - saved.get("at", 0.0) > usage.half_life / 20
        if stored is not None and (differs or (old and any(wanted[r] > TOLD_APART for r in RESOURCES))):
            yield api.Patch(QUEUE, "", name, {"status": {"usage": wanted}}, subresource="status")


def changed(world: World, view: api.View, most: int) -> Iterator[api.Write]:
    """Writes for the queues whose status is not what it should be, at most so many."""
    for name, state in world.queues.items():
        if most <= 0:
            return
        stored = view.get(QUEUE, "", name)
        wanted = status(state)
        if stored is None or all((stored.get("status") or {}).get(k) == v for k, v in wanted.items()):
            continue
        most -= 1
        yield api.Patch(QUEUE, "", name, {"status": wanted}, subresource="status")
