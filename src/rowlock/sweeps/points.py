"""The points of a search: which values each run of a sweep gets.

A random search is drawn from hashes of the seed, so that the same seed gives the same points on every machine and in every version of Python.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence

from rowlock.errors import BadRequest, Cause
from rowlock.sweeps.parameters import MOST_RUNS, Distribution, Space, Values

Point = tuple[str, ...]
"""The values of one run, in the order of the parameters."""
_ATTEMPTS = 100
"""To draw a point that is new."""
_DRAWS_PER_SAMPLE = 20
"""A space of as many points as samples needs about ln(1,000) draws for each: with 20 it is found in full, and a narrow range is given up
before a thread has worked on it for seconds."""
_SORTED_SPACE = 10_000
"""Spaces of up to so many points are sorted by their hashes; of larger ones points are drawn until there are enough."""


def count_grid(sizes: Sequence[int]) -> int:
    """The number of points of a grid of lists with these lengths."""
    return math.prod(sizes)


def grid_point(values: Sequence[Sequence[str]], index: int) -> Point:
    """The point of this number: the last parameter changes fastest."""
    chosen: list[str] = []
    for options in reversed(values):
        index, position = divmod(index, len(options))
        chosen.append(options[position])
    return tuple(reversed(chosen))


def plan_grid(space: Space) -> list[Point]:
    """Every combination of values. Raises BadRequest for a space that has no such list, or too many."""
    lists = []
    for name, parameter in space.items():
        if isinstance(parameter, Distribution):
            message = f"{name}: a grid needs a list of values; a random search draws from a range: --search random --samples N."
            raise BadRequest(message, causes=[Cause("unsupported", message, f"parameters.{name}")])
        lists.append(parameter.values)
    total = count_grid([len(values) for values in lists])
    if total > MOST_RUNS:
        message = (
            f"the grid has {total:,} combinations; a sweep has {MOST_RUNS:,} runs at most: give fewer values, or draw some of"
            " them with --search random --samples N."
        )
        raise BadRequest(message, causes=[Cause("max", message, "parameters")])
    return [grid_point(lists, index) for index in range(total)]


def plan_random(space: Space, samples: int, seed: int) -> list[Point]:
    """So many different points, drawn with this seed. Raises BadRequest if the space has fewer."""
    lists = check_size(space, samples)
    if lists is not None:
        total = count_grid([len(values) for values in lists])
        if total <= _SORTED_SPACE:
            order = sorted(range(total), key=lambda index: _fraction(seed, index, ""))
            return [grid_point(lists, index) for index in order[:samples]]
    points: dict[Point, None] = {}
    for number in range(samples * _DRAWS_PER_SAMPLE):
        points[_draw(space, seed, number)] = None
        if len(points) == samples:
            return list(points)
    message = (
        f"only {len(points):,} different points were found for {samples:,} samples: give wider ranges or fewer samples."
    )
    raise BadRequest(message, causes=[Cause("max", message, "samples")])


def check_size(space: Space, samples: int) -> list[tuple[str, ...]] | None:
    """The lists of a space that has nothing else; None if it has ranges. Raises BadRequest if it has fewer points than samples."""
    lists = [parameter.values for parameter in space.values() if isinstance(parameter, Values)]
    if len(lists) < len(space):
        return None
    total = count_grid([len(values) for values in lists])
    if samples > total:
        message = f"the parameters have {total:,} combinations, fewer than the {samples:,} samples: leave --search out, and all of them are tried."
        raise BadRequest(message, causes=[Cause("max", message, "samples")])
    return lists


def draw_unseen(space: Space, seed: int, seen: Collection[Point]) -> Point:
    """A point that is not among those seen, drawn with this seed; a seen one if there is hardly another."""
    number = len(seen)
    for attempt in range(_ATTEMPTS):
        point = _draw(space, seed, number * _ATTEMPTS + attempt)
        if point not in seen:
            return point
    lists = check_size(space, 0)
    unseen = (
        (grid_point(lists, index) for index in range(count_grid([len(values) for values in lists]))) if lists else ()
    )
    return next((one for one in unseen if one not in seen), point)


def _draw(space: Space, seed: int, number: int) -> Point:
    drawn: list[str] = []
    for name, parameter in space.items():
        fraction = _fraction(seed, number, name)
        if isinstance(parameter, Distribution):
            drawn.append(parameter.value_at(fraction))
        else:
            drawn.append(parameter.values[int(fraction * len(parameter.values))])
    return tuple(drawn)


def _fraction(seed: int, number: int, name: str) -> float:
    """A number from 0 to 1, without 1, that depends on these three alone."""
    digest = hashlib.sha256(f"{seed}/{number}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)
