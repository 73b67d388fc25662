"""Fair shares of queues, computed level by level down the tree and separately for each resource.

First each queue's guaranteed part (its quota, at most what it requests), then the rest in rounds by over-quota weight, in whole units, a
higher queue priority completely before a lower one; last the remainders, one unit each. The steps are KAI's; `docs/design/scheduling.md`
has a worked example. Sets `fair_share` and `allocatable_share` of every queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.scheduling.model.gang_state import QueueState
from rowlock.scheduling.model.resources import GPU, UNLIMITED, WHOLE_GPU, ResourceVector, lower_bound
from rowlock.scheduling.model.session import Session


@dataclass(slots=True)
class QueueClaim:
    """One queue's claim on one resource. `order` breaks ties: older queues have lower numbers."""

    quota: float
    limit: float
    weight: float
    priority: int
    requested: float
    usage: float = 0.0
    order: int = 0
    fair_share: float = 0.0
    remainder: float | None = None

    @property
    def requestable_share(self) -> float:
        return self.requested if self.limit == UNLIMITED else min(self.limit, self.requested)


def divide_resource(total: float, claims: Sequence[QueueClaim], unit: int, usage_weight: float = 1.0) -> None:
    """Set `fair_share` of all claims on one resource. Parts over quota are multiples of `unit`, except the last remainder."""
    for c in claims:
        c.fair_share = min(total if c.quota == UNLIMITED else c.quota, c.requestable_share)
    remaining = total - sum(c.fair_share for c in claims)
    priorities = sorted({c.priority for c in claims}, reverse=True)
    for priority in priorities:
        if remaining <= 0:
            return
        remaining = _divide_over_quota(remaining, [c for c in claims if c.priority == priority], unit, usage_weight)
    for priority in priorities:
        remaining = _divide_remainders(remaining, [c for c in claims if c.priority == priority], unit)


def _divide_over_quota(remaining: float, claims: Sequence[QueueClaim], unit: int, usage_weight: float) -> float:
    another_round = True
    while another_round and remaining > 0:
        another_round = False
        unsatisfied = [
            c for c in claims if c.requested > c.fair_share and (c.limit == UNLIMITED or c.limit > c.fair_share)
        ]
        weights = sum(c.weight for c in unsatisfied)
        if weights <= 0:
            break
        parts = {c.order: c.weight / weights for c in unsatisfied}
        if any(c.usage for c in unsatisfied):  # queues without usage gain by it as well
            normal = parts
            parts = {
                c.order: max(0.0, (1 + usage_weight) * normal[c.order] - usage_weight * c.usage) for c in unsatisfied
            }
        total_weight = sum(parts.values())
        if total_weight <= 0:
            break
        round_start = remaining
        for c in unsatisfied:
            if c.weight <= 0:
                continue
            part = round_start * parts[c.order] / total_weight
            unmet = c.requestable_share - c.fair_share
            if unmet <= part:
                granted, c.remainder = unmet, None
                another_round = another_round or unmet < part
            else:
                granted = part // unit * unit
                c.remainder = part - granted
            c.fair_share += granted
            remaining -= granted
    return remaining


def _divide_remainders(remaining: float, claims: Sequence[QueueClaim], unit: int) -> float:
    by_remainder = sorted((c for c in claims if c.remainder), key=lambda c: (-(c.remainder or 0.0), c.order))
    for c in by_remainder:
        if remaining <= 0:
            break
        granted = min(float(unit), remaining)
        c.fair_share += granted
        remaining -= granted
    return remaining


def set_fair_shares(session: Session) -> None:
    """Set the fair share and allocatable share of every queue by current requests."""
    roots = [q for q in session.queues.values() if q.path and len(q.path) == 1]
    _set_level_shares(session, roots, session.total)


def _set_level_shares(session: Session, queues: Sequence[QueueState], total: ResourceVector) -> None:
    if not queues:
        return
    fair_shares: list[list[float]] = [[0, 0, 0] for _ in queues]
    for r in range(3):
        claims = [_build_claim(q, r) for q in queues]
        divide_resource(max(0, total[r]), claims, WHOLE_GPU if r == GPU else 1, session.settings.usage_weight)
        for at, c in enumerate(claims):
            whole_request = c.fair_share == c.requestable_share  # GPU memory may not be a whole number of hundredths
            fair_shares[at][r] = c.fair_share if whole_request else int(c.fair_share)
    for q, (cpu, memory, gpu) in zip(queues, fair_shares, strict=True):
        q.fair_share = (cpu, memory, gpu)
        quota, limit = q.queue.quota, q.queue.limit
        share = [
            limit[r] if quota[r] == UNLIMITED else lower_bound(limit[r], max(quota[r], q.fair_share[r]))
            for r in range(3)
        ]
        q.allocatable_share = (share[0], share[1], share[2])
        _set_level_shares(session, q.children, q.fair_share)


def _build_claim(q: QueueState, r: int) -> QueueClaim:
    queue = q.queue
    return QueueClaim(
        quota=queue.quota[r],
        limit=queue.limit[r],
        weight=queue.weight[r],
        priority=queue.priority,
        requested=q.requested[r],
        usage=q.usage[r],
        order=q.rank,
    )
