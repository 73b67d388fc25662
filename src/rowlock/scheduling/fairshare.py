"""Fair shares: what each queue may expect, level by level down the tree, for each resource alone.

First everybody's guaranteed part (quota, as far as it is asked for), then the rest in rounds by over-quota weight, a
higher queue priority wholly before a lower one, in whole units; last the remainders, one unit each. The steps are
KAI's; `docs/design/scheduling.md` has a worked example. Writes `fair` and `share` of every queue of a world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock.scheduling.amounts import GPU, UNLIMITED, WHOLE, Vector, smaller
from rowlock.scheduling.world import QueueState, World


@dataclass(slots=True)
class Claim:
    """One queue's claim on one resource. `order` breaks ties: older queues have lower numbers."""

    quota: float
    limit: float
    weight: float
    priority: int
    wanted: float
    usage: float = 0.0
    order: int = 0
    fair: float = 0.0
    remainder: float | None = None

    @property
    def requestable(self) -> float:
        return self.wanted if self.limit == UNLIMITED else min(self.limit, self.wanted)


def divide(total: float, claims: Sequence[Claim], unit: int, usage_weight: float = 1.0) -> None:
    """Set `fair` of all claims on one resource. Parts over quota are multiples of `unit` but for the leftovers."""
    for c in claims:
        c.fair = min(total if c.quota == UNLIMITED else c.quota, c.requestable)
    rest = total - sum(c.fair for c in claims)
    priorities = sorted({c.priority for c in claims}, reverse=True)
    for priority in priorities:
        if rest <= 0:
            return
        rest = _rounds(rest, [c for c in claims if c.priority == priority], unit, usage_weight)
    for priority in priorities:
        rest = _leftovers(rest, [c for c in claims if c.priority == priority], unit)


def _rounds(rest: float, claims: Sequence[Claim], unit: int, usage_weight: float) -> float:
    again = True
    while again and rest > 0:
        again = False
        open_ = [c for c in claims if c.wanted > c.fair and (c.limit == UNLIMITED or c.limit > c.fair)]
        weights = sum(c.weight for c in open_)
        if weights <= 0:
            break
        parts = {c.order: c.weight / weights for c in open_}
        if any(c.usage for c in open_):  # who used nothing gains by it as well
            normal = parts
            parts = {c.order: max(0.0, (1 + usage_weight) * normal[c.order] - usage_weight * c.usage) for c in open_}
        whole = sum(parts.values())
        if whole <= 0:
            break
        start = rest
        for c in open_:
            if c.weight <= 0:
                continue
            part = start * parts[c.order] / whole
            want = c.requestable - c.fair
            if want <= part:
                given, c.remainder = want, None
                again = again or want < part
            else:
                given = part // unit * unit
                c.remainder = part - given
            c.fair += given
            rest -= given
    return rest


def _leftovers(rest: float, claims: Sequence[Claim], unit: int) -> float:
    waiting = sorted((c for c in claims if c.remainder), key=lambda c: (-(c.remainder or 0.0), c.order))
    for c in waiting:
        if rest <= 0:
            break
        given = min(float(unit), rest)
        c.fair += given
        rest -= given
    return rest


def refresh(world: World) -> None:
    """Fair share and allocatable share of every queue, from today's demand."""
    roots = [q for q in world.queues.values() if q.path and len(q.path) == 1]
    _level(world, roots, world.total)


def _level(world: World, queues: Sequence[QueueState], total: Vector) -> None:
    if not queues:
        return
    fair: list[list[int]] = [[0, 0, 0] for _ in queues]
    for r in range(3):
        claims = [_claim(q, r) for q in queues]
        divide(max(0, total[r]), claims, WHOLE if r == GPU else 1, world.settings.usage_weight)
        for at, c in enumerate(claims):
            fair[at][r] = int(c.fair)
    for q, (cpu, memory, gpu) in zip(queues, fair, strict=True):
        q.fair = (cpu, memory, gpu)
        quota, limit = q.queue.quota, q.queue.limit
        share = [limit[r] if quota[r] == UNLIMITED else smaller(limit[r], max(quota[r], q.fair[r])) for r in range(3)]
        q.share = (share[0], share[1], share[2])
        _level(world, q.children, q.fair)


def _claim(q: QueueState, r: int) -> Claim:
    queue = q.queue
    return Claim(
        quota=queue.quota[r],
        limit=queue.limit[r],
        weight=queue.weight[r],
        priority=queue.priority,
        wanted=q.demand[r],
        usage=q.usage[r],
        order=q.rank,
    )
