"""Broken gangs are evicted whole, to start again whole: when a node went away under them or is not ready (after some
seconds, in which it might come back), after a grace when they run with fewer pods than their minimum for another reason.
"""

from __future__ import annotations

from math import inf

from rowlock.scheduling.snapshot import Status
from rowlock.scheduling.world import ACTIVE, GangState, World


def below_minimum(state: GangState) -> bool:
    """It runs, nobody of it has finished, and a set lacks pods."""
    if not state.active or any(s.done for s in state.sets.values()):
        return False
    return any(s.active < s.minimum for s in state.sets.values())


def due(world: World, state: GangState) -> float | None:
    """Seconds until the gang must go (0 = now); None when it is not stale or grace is endless."""
    grace = world.settings.stale_grace if state.gang.grace is None else state.gang.grace
    if grace < 0 or state.gang.foreign or not below_minimum(state):
        return None
    since = state.gang.stale or world.now
    return max(0.0, since + grace - world.now)


def evict_stale(world: World) -> list[GangState]:
    """Evict all that are due; returns them."""
    gone = []
    for state in list(world.partial.values()):
        if due(world, state) == 0:
            _evict(world, state)
            gone.append(state)
    return gone


def loss_due(world: World, state: GangState) -> float:
    """Seconds until a gang with pods on a vanished or unready node must go (0 = now); endless when the plan has moved
    those pods already."""
    gone = {t.node for t in state.tasks if t.node and world.gone(t.node)}
    return min((max(0.0, _given_up(world, node) - world.now) for node in gone), default=inf)


def _given_up(world: World, node: str) -> float:
    """When the node is waited for no longer."""
    grace = world.settings.unready_grace if node in world.nodes else world.settings.node_grace
    return world.lost.get(node, world.now) + grace


def evict_lost(world: World) -> list[GangState]:
    """Evict the gangs that lost a node. Their other pods only wait for a rank that will never answer."""
    gone = []
    for state in list(world.stray.values()):
        if not state.gang.bare and not state.gang.foreign and loss_due(world, state) == 0:
            _evict(world, state)
            gone.append(state)
    return gone


def _evict(world: World, state: GangState) -> None:
    for t in list(state.tasks):
        if t.status in ACTIVE and t.status is not Status.PIPELINED:
            world.move(t, Status.RELEASING, t.node, t.devices, origin=t.origin)
