"""What a planning cycle decides: binds, evictions, and who is held and why; as values.

`planner.py` makes them, `writes.py` turns them into writes, tests compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.scheduling.actions.allocate import Failure
from rowlock.scheduling.model.snapshot import NodeReservation, PipelinedGang


@dataclass(frozen=True, slots=True)
class PlannedBind:
    """Put this pod on this node, on these cards (indices)."""

    namespace: str
    pod: str
    uid: str
    node: str
    devices: tuple[int, ...]
    gang: str


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """Delete this pod. `action` is reclaim, preempt, consolidate, reserve, lost or stale; `preemptor` the gang it makes room for."""

    namespace: str
    pod: str
    uid: str
    gang: str
    action: str
    preemptor: str = ""
    moves_to: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """This gang waits, because of `failure`. Equal gangs of its queue share the failure of the first of them."""

    gang: str
    failure: Failure
    equals_ahead: int = 0
    """How many of its equals stand before it."""


PlanDecision = PlannedBind | PlannedEviction | Hold


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one cycle in order, and what the next cycle needs to know of it."""

    decisions: tuple[PlanDecision, ...] = ()
    reservations: tuple[PipelinedGang, ...] = ()
    next_cycle_in: float | None = None
    """When time alone may change the plan: seconds from now."""
    node_reservations: tuple[NodeReservation, ...] = ()

    @property
    def binds(self) -> list[PlannedBind]:
        return [d for d in self.decisions if isinstance(d, PlannedBind)]

    @property
    def evictions(self) -> list[PlannedEviction]:
        return [d for d in self.decisions if isinstance(d, PlannedEviction)]

    @property
    def holds(self) -> list[Hold]:
        return [d for d in self.decisions if isinstance(d, Hold)]
