"""Draws the next point of a search that learns (TPE), by Optuna.

Nothing is kept between two draws: a study is built from what is recorded, the points and what their runs reached, and asked once. The seed
follows from the sweep's and the number of the run. So the same record gives the same point, also after a restart.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowlock.errors import Unsupported
from rowlock.sweeps.parameters import Distribution, Space
from rowlock.sweeps.points import Point, draw_unseen

if TYPE_CHECKING:
    from optuna import Study

_ATTEMPTS = 10
"""To draw a point that no run has, before one is drawn at random."""


def require_optuna() -> None:
    """Raises Unsupported if Optuna is not installed beside the server."""
    if importlib.util.find_spec("optuna") is None:
        raise Unsupported(
            "--search tpe needs Optuna, which is not installed beside this server: `pip install 'rowlock[sweeps]'` there and start it again,"
            " or take --search random."
        )


def draw_point(
    space: Space,
    seed: int,
    points: Sequence[Point],
    values: Mapping[int, float],
    unfinished: Collection[int],
    *,
    is_max: bool,
) -> Point:
    """The next point after these, given what runs reached, by number. Runs that have not ended count as if they were the worst, so that others
    are drawn elsewhere; those that ended without a value do not count. Blocks for some time: call it in a thread."""
    known = {number: value for number, value in values.items() if math.isfinite(value)}
    if not known:
        return draw_unseen(space, seed, points)
    worst = min(known.values()) if is_max else max(known.values())
    told = {**dict.fromkeys(set(unfinished) - known.keys(), worst), **known}
    seen = set(points)
    for attempt in range(_ATTEMPTS):
        study = _make_study(space, seed, len(points), attempt, is_max=is_max)
        _tell(study, space, points, told)
        params = study.ask(_distributions(space)).params
        point = tuple(_text_of(space[name], params[name]) for name in space)
        if point not in seen:
            return point
    return draw_unseen(space, seed, points)


def _make_study(space: Space, seed: int, number: int, attempt: int, *, is_max: bool) -> Study:
    require_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its own dependencies say while they are loaded
        import optuna  # late: it is an extra, and large

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    digest = hashlib.sha256(f"{seed}/{number}/{attempt}".encode()).digest()
    sampler = optuna.samplers.TPESampler(seed=int.from_bytes(digest[:4], "big"), n_startup_trials=1)
    return optuna.create_study(sampler=sampler, direction="maximize" if is_max else "minimize")


def _distributions(space: Space) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        name: FloatDistribution(one.low, one.high, log=one.is_log)
        if isinstance(one, Distribution)
        else CategoricalDistribution(one.values)
        for name, one in space.items()
    }


def _tell(study: Study, space: Space, points: Sequence[Point], values: Mapping[int, float]) -> None:
    from optuna.trial import create_trial

    distributions = _distributions(space)
    for number in sorted(values):
        given = zip(space.items(), points[number], strict=True)
        params = {name: _value_of(parameter, text) for (name, parameter), text in given}
        study.add_trial(create_trial(params=params, distributions=distributions, value=values[number]))


def _value_of(parameter: Any, text: str) -> Any:
    """The value that Optuna knows; six digits may lie a little beyond the range."""
    if isinstance(parameter, Distribution):
        return min(max(float(text), parameter.low), parameter.high)
    return text


def _text_of(parameter: Any, value: Any) -> str:
    return f"{value:.6g}" if isinstance(parameter, Distribution) else str(value)
