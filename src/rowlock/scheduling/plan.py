"""What a planning cycle decides, as values: binds, evictions, and holds with their reasons.

`planner.py` makes them, `writes.py` turns them into writes, tests compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.scheduling.actions.allocate import Failure
from rowlock.scheduling.model.snapshot import NodeReservation, PipelinedGang


@dataclass(frozen=True, slots=True)
class PlannedBind:
    """Bind this pod to this node; `devices` are the indices of its GPUs."""

    namespace: str
    pod: str
    uid: str
    node: str
    devices: tuple[int, ...]
    gang: str


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """Delete this pod. `action`: reclaim, preempt, consolidate, reserve, lost or stale; `preemptor`: the gang for which it is evicted."""

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
    """How many equal gangs are before it in the order."""


PlanDecision = PlannedBind | PlannedEviction | Hold


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one cycle in order, and what the next cycle needs."""

    decisions: tuple[PlanDecision, ...] = ()
    reservations: tuple[PipelinedGang, ...] = ()
    next_cycle_in: float | None = None
    """Seconds until the plan may change without any change of the cluster; None = never."""
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
