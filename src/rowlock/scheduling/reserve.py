"""A big gang that waits long gets nodes kept for it, so that small jobs cannot overtake it for ever.

One gang at a time in each node pool, the highest priority and oldest first, that is entitled to the room, is larger than
one card, and has waited for `reserve_after`. The nodes that will be free soonest are *earmarked*. From then on only those may be placed
there who can be evicted for it again (preemptible *guests*) and those who declare that they will have ended before the
nodes open. When only guests are in the way, they yield. So the gang starts, at the latest, when those who ran there
before have ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from rowlock.scheduling.allocate import attempt
from rowlock.scheduling.amounts import ZERO, minus, plus, within
from rowlock.scheduling.order import gang_key, wanted
from rowlock.scheduling.placement import Placer, cards, fits, obstacle
from rowlock.scheduling.protection import evictable, preempt_seconds, reclaim_seconds, remaining_runtime
from rowlock.scheduling.room import NodeState
from rowlock.scheduling.snapshot import Earmark, Status
from rowlock.scheduling.topology import value
from rowlock.scheduling.waiting import Waiting
from rowlock.scheduling.world import ACTIVE, HOLDING, REAL, GangState, TaskState, World


def settle(world: World, placer: Placer, waiting: Waiting) -> None:
    """Keep, drop or choose the earmark. Called when fair shares are fresh and before anybody is placed."""
    if "reserve" not in world.settings.actions or world.settings.reserve_after <= 0:
        world.keep(())
        return
    world.keep(tuple(mark for mark in world.earmarks if _holds(world, waiting, mark)))
    _keep_quota(world)
    _choose(world, placer, waiting)
    world.opens = {mark.gang: _opens(world, mark) for mark in world.earmarks}
    _keep_quota(world)


def _keep_quota(world: World) -> None:
    """The nodes alone would not help where others of its queues use up the limit or the quota."""
    for q in world.queues.values():
        q.kept = ()
    for mark in world.earmarks:
        state = world.gangs.get(mark.gang)
        if state is None or state.queue is None:
            continue
        need = world.need(wanted(state))
        for q in state.queue.path:
            q.kept = (*q.kept, (state.gang.key, need, not state.gang.preemptible))


def _holds(world: World, waiting: Waiting, mark: Earmark) -> bool:
    """Does the gang still wait, may it still have the room, are its nodes there?"""
    state = world.gangs.get(mark.gang)
    if state is None or mark.gang not in waiting.where or not _entitled(world, state):
        return False
    if not _affordable(world, state, mark.nodes):
        return False
    shape = wanted(state)[0].task.shape
    return all(n in world.nodes and not obstacle(shape, world.nodes[n].node) for n in mark.nodes)


def _entitled(world: World, state: GangState) -> bool:
    """Below its minimum, larger than one card, and its queues may hold it whole."""
    tasks = wanted(state)
    if not tasks or all(s.missing <= 0 for s in state.sets.values()) or state.queue is None:
        return False
    if len(tasks) == 1 and tasks[0].task.shape.cards <= 1:
        return False
    need = world.need(tasks)
    bounds = [b for q in state.queue.path for b in (q.fair, q.queue.limit)]
    if not state.gang.preemptible:
        bounds += [q.queue.quota for q in state.queue.path]
    return all(within(need, b) for b in bounds)


def _affordable(world: World, state: GangState, nodes: Iterable[str]) -> bool:
    """Would its queues be within their fair share with it, once their own pods have left those nodes? Else others would
    take the room back at once, and so on in turn."""
    need, kept = world.need(wanted(state)), set(nodes)
    for q in state.queue.path if state.queue is not None else ():
        mine = (g for g in world.active_gangs() if g.queue is not None and q in g.queue.path)
        there = (t for g in mine for t in g.tasks if t.status in ACTIVE and t.node in kept)
        leaving = ZERO
        for t in there:
            leaving = plus(leaving, world.vector(t.task.shape, world.nodes.get(t.node)))
        if not within(plus(minus(q.counted, leaving), need), q.fair):
            return False
    return True


def waiting_since(state: GangState) -> float:
    """A gang that ran and was evicted waits since then."""
    return max(state.gang.created, state.gang.started)


def _choose(world: World, placer: Placer, waiting: Waiting) -> None:
    """Keep nodes for one more gang in every pool that has none yet."""
    ripe = [
        group[0]
        for group in waiting.ready()
        if world.now - waiting_since(group[0]) >= world.settings.reserve_after and _entitled(world, group[0])
    ]
    for state in sorted(ripe, key=gang_key):
        if world.mark_in(state.pool) is not None:
            continue
        mark = world.mark()
        fits_now = attempt(world, placer, state) is None
        world.rollback(mark)
        if fits_now:
            continue
        nodes = _nodes(world, state)
        if nodes and _affordable(world, state, nodes):
            world.keep((*world.earmarks, Earmark(state.gang.key, nodes, world.now, state.pool)))


@dataclass(slots=True)
class Drain:
    """When a node will be empty. `stays` counts who can neither be evicted nor says when it ends."""

    state: NodeState
    ends: float = 0.0
    stays: int = 0


def _nodes(world: World, state: GangState) -> tuple[str, ...]:
    """The nodes that would hold the gang, were they empty: those that are empty soonest; () when there are none."""
    drains = [Drain(s) for s in world.order]
    for gang in world.active_gangs():
        ends = gang.gang.started + gang.gang.lasts if gang.gang.lasts else inf
        for t in gang.tasks:
            if t.status in REAL and (at := world.nodes.get(t.node)) is not None:
                drain = drains[at.index]
                drain.ends = max(drain.ends, ends)
                drain.stays += not gang.gang.preemptible and ends == inf
    drains.sort(key=lambda d: (d.stays > 0, d.ends, -d.state.idle_gpu(), -d.state.cpu, d.state.index))
    label = state.gang.required
    if not label:
        return _fill(world, state, drains)
    values = dict.fromkeys(v for d in drains if (v := value(d.state.node, label)) is not None)
    found = (_fill(world, state, [d for d in drains if value(d.state.node, label) == v]) for v in values)
    return next(filter(None, found), ())


def _fill(world: World, state: GangState, drains: Iterable[Drain]) -> tuple[str, ...]:
    """Fill empty copies of the nodes, in this order, until the whole gang has its place."""
    tasks = sorted(wanted(state), key=lambda t: -t.task.shape.cards)
    chosen: list[str] = []
    foreign = [t for g in world.gangs.values() if g.gang.foreign for t in g.tasks if t.status in HOLDING]
    for drain in drains:
        if not tasks:
            break
        empty = NodeState(drain.state.node, 0)
        for t in foreign:
            if t.node == empty.node.name:
                empty.occupy(t.task.shape, t.devices, 1)
        left = [t for t in tasks if not _holds_one(empty, t)]
        if len(left) < len(tasks):
            chosen.append(empty.node.name)
            tasks = left
    return () if tasks else tuple(chosen)


def _holds_one(empty: NodeState, task: TaskState) -> bool:
    """Put the task on the copy, if there is room."""
    shape = task.task.shape
    if obstacle(shape, empty.node) or not fits(empty, shape, later=False):
        return False
    found = cards(empty, shape, later=False, spread=False)
    if found is None:
        return False
    empty.occupy(shape, found, 1)
    return True


def _opens(world: World, mark: Earmark) -> float | None:
    """When everybody on the nodes will have ended who need not yield; None when somebody does not say."""
    latest, kept = world.now, set(mark.nodes)
    for gang in world.active_gangs():
        if gang.gang.key == mark.gang or _guest(gang, mark) or not any(t.node in kept for t in gang.tasks):
            continue
        if not gang.gang.lasts:
            return None
        latest = max(latest, gang.gang.started + gang.gang.lasts)
    return latest


def _guest(gang: GangState, mark: Earmark) -> bool:
    """It came after the nodes were kept, and knew: it can be evicted. (Start times are whole seconds.)"""
    return gang.gang.preemptible and (gang.gang.started or gang.gang.created) >= int(mark.since)


def clear(world: World, placer: Placer, mark: Earmark) -> tuple[GangState | None, float | None]:
    """When only guests are in the way, they yield: (the gang with its promise or None, when to try again)."""
    state = world.gangs.get(mark.gang)
    if state is None or any(s.active > s.real for s in state.sets.values()):
        return None, None
    kept = set(mark.nodes)
    guests = [
        g
        for g in world.active_gangs()
        if evictable(g) and not g.served and g is not state and _guest(g, mark) and any(t.node in kept for t in g.tasks)
    ]
    waits = [w for g in guests if (w := _protected(world, state, g)) > 0]
    guests = [g for g in guests if _protected(world, state, g) <= 0]
    guests.sort(key=lambda g: (g.gang.priority, -g.gang.started, g.gang.key))
    if not guests or not _yield(world, placer, state, guests):
        return None, min(waits, default=None)
    return state, None


def _yield(world: World, placer: Placer, state: GangState, guests: list[GangState]) -> bool:
    """Evict as few of the guests, in this order, as let the gang have its promise."""
    start = world.mark()
    low, high = 0, len(guests)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _try(world, placer, state, guests[:middle]) else (middle + 1, high)
        world.rollback(start)
    if _try(world, placer, state, guests[:low]):
        return True
    world.rollback(start)
    return False


def _try(world: World, placer: Placer, state: GangState, guests: Iterable[GangState]) -> bool:
    for guest in guests:
        for t in list(guest.tasks):
            if t.status in (Status.BOUND, Status.RUNNING):
                world.move(t, Status.RELEASING, t.node, t.devices)
            elif t.status in (Status.ALLOCATED, Status.PIPELINED) and t.origin is None:
                world.move(t, Status.PENDING)
    if attempt(world, placer, state) is not None:
        return False
    return state.queue is not None and all(within(q.counted, q.fair) for q in state.queue.path)


def _protected(world: World, state: GangState, guest: GangState) -> float:
    """Seconds of its queue's min-runtime that are left."""
    same = guest.queue is state.queue
    return remaining_runtime(world, guest, preempt_seconds(guest) if same else reclaim_seconds(state, guest))


def held_up(world: World, state: GangState) -> bool:
    """Is there room for its first pod now on a node that is kept for another, and only there?"""
    mark = world.mark_in(state.pool)
    tasks = wanted(state)
    if mark is None or mark.gang == state.gang.key or state.gang.preemptible or not tasks:
        return False
    shape = tasks[0].task.shape
    kept = [world.nodes[n] for n in mark.nodes if n in world.nodes]
    return any(
        not obstacle(shape, s.node)
        and fits(s, shape, later=False)
        and cards(s, shape, later=False, spread=False) is not None
        for s in kept
    )
