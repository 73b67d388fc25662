"""What workloads held over time: one entry per change, in memory, for as long as the workload exists.

A restarted server begins with an empty history. A workload that changes often loses its oldest entries.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError
from rowlock.rest.informers import InformerCache
from rowlock.workloads.figures.gauges import nothing_held, read_gauges
from rowlock.workloads.phase import TERMINAL

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""Seconds between two samples."""
_MAX_CHANGES = 500
TURN_S = 0.0005
"""Seconds of sampling before yielding to the event loop, so that concurrent requests are not delayed."""
_NOTED = "usage"
"""Key in `WorkloadRow.known`; present if the workload has not changed since the last sample."""

Gauges = tuple[Decimal, ...]


@dataclass(slots=True)
class Steps:
    """A step function: values of a workload (or another object), each valid from its time until the next."""

    times: list[float] = field(default_factory=list)
    values: list[Gauges] = field(default_factory=list)
    is_over: bool = False
    """Whether the workload has ended and its last values are stored."""

    def add(self, time: float, values: Gauges) -> None:
        if not self.values or self.values[-1] != values:
            self.times.append(time)
            self.values.append(values)
        if len(self.times) > _MAX_CHANGES:
            del self.times[0], self.values[0]

    def at(self, times: Sequence[float]) -> list[Gauges | None]:
        """The values at these times; None before the first."""
        found = [bisect_right(self.times, time) for time in times]
        return [self.values[index - 1] if index else None for index in found]


class UsageHistory:
    """The steps of every workload, by the uid of its job."""

    def __init__(self, cache: InformerCache, clock: Callable[[], float]) -> None:
        self._cache, self._clock = cache, clock
        self._steps: dict[str, Steps] = {}

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Take one sample: store changed values, and drop those of deleted workloads."""
        present, budget = set[str](), TurnBudget(TURN_S)
        for row in self._cache.rows():
            await budget.pause_if_due()
            present.add(row.uid)
            if row.uid not in self._steps or _NOTED not in row.known:
                self._note(row.uid)
                row.known[_NOTED] = True
        for uid in list(self._steps):
            await budget.pause_if_due()
            if uid not in present:
                self._steps.pop(uid, None)

    def _note(self, uid: str) -> None:
        steps, (pods, live) = self._steps.get(uid), self._cache.count_pods(uid)
        if not self._cache.has_job(uid) or (steps is not None and steps.is_over):
            return
        workload = self._cache.workload(uid) if live or not pods else None  # else nothing need be decoded
        steps = self._steps.setdefault(uid, Steps())
        try:
            steps.add(self._clock(), read_gauges(workload) if workload else nothing_held(pods))
        except (
            ApiError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ) as error:  # a malformed object must not affect others
            log.warning("no figures of the job %s: %s: %s", uid, type(error).__name__, error)
            steps.is_over = True
            return
        steps.is_over = self._cache.phase(uid) in TERMINAL and not any(steps.values[-1][1:])

    def samples(self, uid: str, times: Sequence[float]) -> list[Gauges | None]:
        """The values at these times; None before the workload's first sample."""
        return self._steps.get(uid, Steps()).at(times)

    def latest(self, uid: str) -> Gauges | None:
        """The values of the last sample; None for an unknown workload."""
        steps = self._steps.get(uid)
        return steps.values[-1] if steps is not None and steps.values else None
