"""What a planning cycle decides: binds, evictions, and who is held and why; as values.

`planner.py` makes them, `writes.py` turns them into writes, tests compare them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.scheduling.allocate import Failure
from rowlock.scheduling.snapshot import Earmark, Reservation


@dataclass(frozen=True, slots=True)
class Bind:
    """Put this pod on this node, on these cards (indices)."""

    namespace: str
    pod: str
    uid: str
    node: str
    devices: tuple[int, ...]
    gang: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete this pod. `act` is reclaim, preempt, consolidate, reserve, lost or stale; `by` the gang it makes room for."""

    namespace: str
    pod: str
    uid: str
    gang: str
    act: str
    by: str = ""
    moves_to: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """This gang waits, because of `failure`. Equal gangs of its queue share the failure of the first of them."""

    gang: str
    failure: Failure
    ahead: int = 0
    """How many of its equals stand before it."""


Decision = Bind | Evict | Hold


@dataclass(frozen=True, slots=True)
class Plan:
    decisions: tuple[Decision, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    again: float | None = None
    """When time alone may change the plan: seconds from now."""
    earmarks: tuple[Earmark, ...] = ()

    @property
    def binds(self) -> list[Bind]:
        return [d for d in self.decisions if isinstance(d, Bind)]

    @property
    def evicts(self) -> list[Evict]:
        return [d for d in self.decisions if isinstance(d, Evict)]

    @property
    def holds(self) -> list[Hold]:
        return [d for d in self.decisions if isinstance(d, Hold)]
