"""The recent usage of each queue, for time-based fair share (KAI's usage database).

A queue's usage is the fraction of the cluster that it held, averaged over the past with a weight that halves every `half_life`. The less a
queue has used, the more it gets of the resources beyond all quotas (`fairshare.py`); quotas do not change. Usage is measured at every cycle
from what queues hold, and saved in the queues' status once a minute. After a restart it continues from there; time without a scheduler only
decays it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

from rowlock.objects import Object, dig, name, uid
from rowlock.scheduling.model.resources import ResourceVector

UsageShare = tuple[float, float, float]
NO_USAGE: UsageShare = (0.0, 0.0, 0.0)
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
SAVE_INTERVAL = 60.0
"""Seconds between two saves, and between two recomputations of fair shares."""


@dataclass(slots=True)
class QueueUsage:
    """Decayed averages per queue. `weight`: the observed seconds behind them, decayed too."""

    half_life: float
    measured_at: float | None = None
    weight: float = 0.0
    shares: dict[str, UsageShare] = field(default_factory=dict)
    _uids: dict[str, str] = field(default_factory=dict)
    """Name → uid of the queues in `shares`: a new queue with a deleted one's name starts without usage."""

    def forget_deleted(self, queues: Iterable[Object]) -> None:
        """Drop the usage of deleted queues, including those whose name a new queue has. `queues`: all existing ones."""
        uids = {name(queue): uid(queue) for queue in queues}
        for queue, known in self._uids.items():
            if uids.get(queue) != known:
                self.shares.pop(queue, None)
        self._uids = uids

    def advance(self, now: float, allocated: Mapping[str, ResourceVector], total: ResourceVector) -> None:
        """Add the time since the last call, in which each queue held `allocated` of `total`."""
        if self.half_life <= 0 or self.measured_at is None or now <= self.measured_at:
            self.measured_at = now if self.measured_at is None else max(now, self.measured_at)
            return
        fade = 0.5 ** ((now - self.measured_at) / self.half_life)
        new_weight = (1 - fade) * self.half_life / log(2)
        old_weight, self.weight, self.measured_at = self.weight * fade, self.weight * fade + new_weight, now
        for queue in allocated.keys() | self.shares.keys():
            before, queue_allocated = self.shares.get(queue, NO_USAGE), allocated.get(queue, (0, 0, 0))
            parts = [
                (before[r] * old_weight + (queue_allocated[r] / total[r] if total[r] > 0 else 0.0) * new_weight)
                / self.weight
                for r in range(3)
            ]
            self.shares[queue] = (parts[0], parts[1], parts[2])
        self.shares = {q: s for q, s in self.shares.items() if q in allocated or max(s) > 1e-6}

    def saved_status(self, queue: str) -> dict[str, Any]:
        """The usage as saved in the queue's status: fractions of the cluster."""
        share = self.shares.get(queue, NO_USAGE)
        parts: dict[str, Any] = {r: round(share[i], 4) for i, r in enumerate(RESOURCES)}
        return {**parts, "observedSeconds": round(self.weight), "at": round(self.measured_at or 0.0)}

    def restore(self, queues: Iterable[Object], now: float) -> None:
        """Restore what an earlier scheduler saved. Malformed numbers count as 0."""
        for queue in queues:
            saved = dig(queue, "status.usage") or {}
            at, weight = _parse_number(saved.get("at")), _parse_number(saved.get("observedSeconds"))
            if not 0 < at <= now:
                continue
            fade = 0.5 ** ((now - at) / self.half_life)
            self.weight = max(self.weight, weight * fade)
            share = [min(1.0, _parse_number(saved.get(r))) for r in RESOURCES]
            self.shares[name(queue)] = (share[0], share[1], share[2])
        self.measured_at = now


def _parse_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0.0
