"""What other quotas would change now: runs the real planner twice on copies of the cluster; nothing is written.

One cycle is planned with the current quotas and one with the others. The outcome has only what the second cycle starts or evicts and the
first does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rowlock.scheduling.model.resources import GPU
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Queue, Snapshot, Status
from rowlock.scheduling.planner import Planner


@dataclass(frozen=True, slots=True)
class Yielding:
    """A gang that would lose pods; `action` is how: reclaim, preempt or consolidate."""

    gang: Gang
    pods: int
    action: str


@dataclass(frozen=True, slots=True)
class QuotaOutcome:
    """The effect of other quotas. `starts_after`: gangs that would start once evicted pods have ended; `waits`: gangs that would start with
    the current quotas and not with the others; `fair_shares`: hundredths of a GPU, by queue."""

    starts: tuple[Gang, ...] = ()
    starts_after: tuple[Gang, ...] = ()
    waits: tuple[Gang, ...] = ()
    yields: tuple[Yielding, ...] = ()
    fair_shares: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class _Cycle:
    """What one cycle decided, by key of the gang (`fair_shares`: by queue)."""

    placed: dict[str, Status]
    yields: dict[str, Yielding]
    fair_shares: dict[str, int]


def try_quotas(snapshot: Snapshot, gpu_quotas: Mapping[str, int]) -> QuotaOutcome:
    """The effect of these GPU quotas (name of a queue → hundredths of a GPU). Other queues keep theirs."""
    queues = tuple(_with_quota(queue, gpu_quotas) for queue in snapshot.queues)
    before, after = _plan_cycle(snapshot), _plan_cycle(replace(snapshot, queues=queues))
    gangs = {gang.key: gang for gang in snapshot.gangs}
    new = {key: status for key, status in after.placed.items() if key not in before.placed}
    return QuotaOutcome(
        starts=_in_order(gangs, (key for key, status in new.items() if status is Status.ALLOCATED)),
        starts_after=_in_order(gangs, (key for key, status in new.items() if status is Status.PIPELINED)),
        waits=_in_order(gangs, (key for key in before.placed if key not in after.placed)),
        yields=tuple(one for key, one in sorted(after.yields.items()) if key not in before.yields),
        fair_shares=after.fair_shares,
    )


def _with_quota(queue: Queue, gpu_quotas: Mapping[str, int]) -> Queue:
    if queue.name not in gpu_quotas:
        return queue
    quota = list(queue.quota)
    quota[GPU] = gpu_quotas[queue.name]
    return replace(queue, quota=(quota[0], quota[1], quota[2]))


def _in_order(gangs: Mapping[str, Gang], keys: Iterable[str]) -> tuple[Gang, ...]:
    return tuple(gangs[key] for key in sorted(keys, key=lambda key: (gangs[key].created, key)))


def _plan_cycle(snapshot: Snapshot) -> _Cycle:
    planner = Planner(open_session(snapshot))
    plan = planner.run_cycle(keep_plan=True)
    session = planner.session
    placed: dict[str, Status] = {}
    for key, state in session.gangs.items():
        statuses = {task.status for task in state.tasks}
        if Status.ALLOCATED in statuses or Status.PIPELINED in statuses:
            placed[key] = Status.ALLOCATED if Status.ALLOCATED in statuses else Status.PIPELINED
    yields: dict[str, Yielding] = {}
    for eviction in plan.evictions:
        if not eviction.preemptor:
            continue  # evicted for no other gang: its node is lost, or its gang is stale
        known = yields.get(eviction.gang)
        gang = session.gangs[eviction.gang].gang
        yields[eviction.gang] = Yielding(gang, known.pods + 1 if known else 1, eviction.action)
    # A gang that only moves does not count as started.
    placed = {key: status for key, status in placed.items() if key not in yields}
    shares = {name: int(queue.fair_share[GPU]) for name, queue in session.queues.items()}
    planner.reset()
    return _Cycle(placed, yields, shares)
