"""Which runs of a sweep are stopped early: asynchronous successive halving (ASHA; Li et al., 2018). Pure.

The rungs are after `first` values of the metric, then after `FACTOR` times as many, and so on. At each rung a run goes on while it is among
the best third of the runs that have come to this rung, whether those run, have ended, or were stopped. So a run is compared with what others
had after as many values; the first runs at a rung are compared with nobody, and who falls behind later is stopped then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

FACTOR = 3
DEFAULT_FIRST = 3
"""Values of the metric before the first comparison."""
MOST_FIRST = 1_000_000


@dataclass(frozen=True, slots=True)
class StopRule:
    """`asha` by this metric, of which the lowest value is the best, or with `is_max` the highest."""

    metric: str
    is_max: bool
    first: int = DEFAULT_FIRST


def rung_values(values: Iterable[float], rule: StopRule) -> tuple[float, ...]:
    """The best value that a run had at each rung that it has come to. NaN where it had no number until then."""
    found: list[float] = []
    best, rung = math.nan, rule.first
    for number, value in enumerate(values, 1):
        if _is_better(value, best, rule):
            best = value
        if number == rung:
            found.append(best)
            rung *= FACTOR
    return tuple(found)


def decide_stops(rule: StopRule, rungs: Mapping[int, Sequence[float]], running: Collection[int]) -> dict[int, str]:
    """The runs that are stopped now, with the reason. `rungs`: what each run of the sweep had at its rungs."""
    stops: dict[int, str] = {}
    for index in sorted(running):
        own = rungs.get(index, ())
        if not own:
            continue
        rung = len(own) - 1
        others = [values[rung] for values in rungs.values() if len(values) > rung]
        better = sum(_is_better(value, own[rung], rule) for value in others)
        if len(others) >= FACTOR and better >= len(others) // FACTOR:
            count = rule.first * FACTOR**rung
            stops[index] = (
                f"after {count:,} values its best {rule.metric} was {own[rung]:.6g}, and of {len(others)} runs {better} had a better one by then"
            )
    return stops


def _is_better(value: float, other: float, rule: StopRule) -> bool:
    """Whether a value is better; what is no number is worse than any."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(other) and not math.isnan(value)
    return value > other if rule.is_max else value < other
