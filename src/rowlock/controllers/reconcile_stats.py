"""How many turns each controller took, how they ended and how long they were: for `/metrics`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Result = Literal["success", "requeue", "requeue_after", "error"]
"""The outcome of a turn, with controller-runtime's labels."""


@dataclass(slots=True)
class ReconcileStats:
    """Totals by controller."""

    results: Counter[tuple[str, Result]] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    turn_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of whole turns, writes included."""
    decide_seconds: dict[str, float] = field(default_factory=dict)

    def add(self, controller: str, result: Result, turn_seconds: float, decide_seconds: float) -> None:
        """One more turn."""
        self.results[controller, result] += 1
        self.turns[controller] += 1
        self.turn_seconds[controller] = self.turn_seconds.get(controller, 0.0) + turn_seconds
        self.decide_seconds[controller] = self.decide_seconds.get(controller, 0.0) + decide_seconds


RECONCILES = ReconcileStats()
"""The statistics of this process."""
