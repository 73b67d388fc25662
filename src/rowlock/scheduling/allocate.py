"""One gang's attempt: may its queue have that much, and is there room for all of it at once?

`attempt` places what the gang wants or changes nothing and returns a `Failure`: the reason and the numbers for the
sentence. Tasks that fit only where others are still leaving are Pipelined; a gang that cannot wholly start now is
pipelined wholly, so that half a gang never runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rowlock.scheduling.amounts import UNLIMITED, Vector, plus
from rowlock.scheduling.order import wanted
from rowlock.scheduling.placement import EVERYWHERE, Placer
from rowlock.scheduling.snapshot import Shape, Status
from rowlock.scheduling.topology import regions
from rowlock.scheduling.world import REAL, GangState, TaskState, World


class Reason(StrEnum):
    """Why a gang waits: the one word of lists; the sentence goes with it."""

    NOT_READY = "NotReady"
    QUEUE_MISSING = "QueueDoesNotExist"
    OVER_LIMIT = "OverLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    DOES_NOT_FIT = "GangDoesNotFit"
    FRAGMENTED = "Fragmented"
    TOO_LARGE = "NoNodeLargeEnough"
    SELECTOR = "NodeSelectorUnsatisfied"
    RELEASING = "WaitingForRelease"
    PROTECTED = "WaitingForReclaim"
    EXHAUSTED = "FairShareExhausted"
    RESERVED = "Reserved"
    TOPOLOGY = "TopologyUnsatisfied"
    UNSUPPORTED = "Unsupported"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. `resource`, `bound`, `counted`, `asked` for capacity; `shape`, `fit`, `needed` for room."""

    reason: Reason
    queue: str = ""
    resource: int = 0
    bound: int = 0
    counted: int = 0
    asked: int = 0
    task: str = ""
    shape: Shape | None = None
    fit: int = 0
    needed: int = 0
    seconds: float = 0.0
    """How long it lasts at least, where time is the obstacle."""


def unready(state: GangState) -> str:
    """KAI's sentence for a gang whose pods are not all there yet; "" when it is ready."""
    for s in state.sets.values():
        exist = s.alive + s.done
        if exist < s.minimum:
            gated = sum(t.status is Status.GATED for t in s.tasks)
            where = f" for SubGroup {s.name}" if s.name else ""
            return (
                f"Job is not ready for scheduling. Waiting for {s.minimum} pods{where}, "
                f"currently {exist + gated} exist, {gated} are gated"
            )
    return ""


def gate(state: GangState, amount: Vector) -> Failure | None:
    """Limits for everybody, quotas for the non-preemptible, at every ancestor."""
    if state.queue is None:
        return Failure(Reason.QUEUE_MISSING, state.gang.queue)
    for q in state.queue.path:
        found = _exceeded(q.queue.limit, q.counted, amount)
        if found is not None:
            r = found
            return Failure(Reason.OVER_LIMIT, q.queue.name, r, q.queue.limit[r], q.counted[r], amount[r])
    if not state.gang.preemptible:
        for q in state.queue.path:
            found = _exceeded(q.queue.quota, q.fixed, amount)
            if found is not None:
                r = found
                return Failure(Reason.OVER_QUOTA, q.queue.name, r, q.queue.quota[r], q.fixed[r], amount[r])
    return _kept(state, amount)


def _kept(state: GangState, amount: Vector) -> Failure | None:
    """What is left of a limit or quota may be kept for a gang that waited long."""
    assert state.queue is not None
    for q in state.queue.path:
        keys = [key for key, *_ in q.kept]
        first = keys.index(state.gang.key) if state.gang.key in keys else len(keys)  # two must not wait for each other
        others = [(need, fixed) for _, need, fixed in q.kept[:first]]
        if not others:
            continue
        found = _exceeded(q.queue.limit, q.counted, _sum(amount, (need for need, _ in others)))
        if found is None and not state.gang.preemptible and any(fixed for _, fixed in others):
            found = _exceeded(q.queue.quota, q.fixed, _sum(amount, (need for need, fixed in others if fixed)))
        if found is not None and amount[found]:
            return Failure(Reason.RESERVED, q.queue.name, found, 0, q.counted[found], amount[found])
    return None


def _sum(amount: Vector, more: Iterable[Vector]) -> Vector:
    for one in more:
        amount = plus(amount, one)
    return amount


def _exceeded(bound: Vector, counted: Vector, amount: Vector) -> int | None:
    after = plus(counted, amount)
    for r in (2, 0, 1):
        if bound[r] != UNLIMITED and amount[r] > 0 and after[r] > bound[r]:
            return r
    return None


def attempt(
    world: World,
    placer: Placer,
    state: GangState,
    *,
    only_later: bool = False,
    promised: Mapping[str, str] | None = None,
    tasks: Sequence[TaskState] | None = None,
) -> Failure | None:
    """Place what the gang wants (or `tasks`); None on success, the world unchanged on failure."""
    tasks = wanted(state) if tasks is None else tasks
    if not tasks:
        return Failure(Reason.NOT_READY)
    refused = gate(state, world.need(tasks)) or _bereft(world, state)
    if refused is not None:
        return refused
    if state.gang.required or state.gang.preferred:
        return _close_together(world, placer, state, tasks, Wish(only_later, promised or {}))
    return _place(world, placer, state, tasks, Wish(only_later, promised or {}))


def _bereft(world: World, state: GangState) -> Failure | None:
    """A gang that has lost a node gets nothing more: it starts again whole, or the node comes back."""
    if state.gang.key not in world.stray:
        return None
    nodes = sorted({t.node for t in state.tasks if t.node and t.status in REAL and world.gone(t.node)})
    if not nodes:
        return None
    text = f"Nothing is heard of its pods on node {nodes[0]}: it starts again whole unless the node comes back"
    return Failure(Reason.NOT_READY, state.gang.queue, task=text)


@dataclass(frozen=True, slots=True)
class Wish:
    """How an attempt is made: promises only; on these nodes first, by pod."""

    only_later: bool
    promised: Mapping[str, str]


def _close_together(
    world: World, placer: Placer, state: GangState, tasks: Sequence[TaskState], wish: Wish
) -> Failure | None:
    """In one region after another. When only the required closeness stands in the way, the failure says so."""
    best = 0
    try:
        for region in regions(world, state, tasks, wish.promised):
            state.region = region
            failure = _place(world, placer, state, tasks, wish)
            if failure is None:
                return None
            best = max(best, failure.fit)
    finally:
        state.region = EVERYWHERE
    mark = world.mark()
    anywhere = _place(world, placer, state, tasks, wish)
    world.rollback(mark)
    if anywhere is not None:
        return anywhere
    return Failure(
        Reason.TOPOLOGY,
        state.gang.queue,
        task=state.gang.required,
        shape=tasks[0].task.shape,
        fit=best,
        needed=len(tasks),
    )


def _place(world: World, placer: Placer, state: GangState, tasks: Sequence[TaskState], wish: Wish) -> Failure | None:
    mark = world.mark()
    for at, task in enumerate(tasks):
        prefer = wish.promised.get(task.task.name, "")
        if not placer.place(task, only_later=wish.only_later, prefer=prefer):
            world.rollback(mark)
            shape = task.task.shape
            reason = Reason.UNSUPPORTED if shape.unsupported else Reason.DOES_NOT_FIT
            return Failure(reason, state.gang.queue, task=task.task.name, shape=shape, fit=at, needed=len(tasks))
    if any(s.real + s.done < s.minimum for s in state.sets.values()):
        _pipeline_all(world, tasks)
    return None


def _pipeline_all(world: World, tasks: Sequence[TaskState]) -> None:
    """Part of the gang could start now: it waits for its core, keeping its places."""
    for t in tasks:
        if t.status is Status.ALLOCATED:
            world.move(t, Status.PIPELINED, t.node, t.devices, origin=t.origin)
