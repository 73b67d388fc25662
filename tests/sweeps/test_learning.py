"""A search that learns: what is drawn depends on what is recorded alone, and on nothing that a restart loses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tests.sweeps.build import KEY, config_map, make_sweep

from rowlock.errors import BadRequest
from rowlock.rest.sweeps.learning import draw_point
from rowlock.rest.sweeps.request import STARTUP, parse_request
from rowlock.sweeps.parameters import parse_space
from rowlock.sweeps.points import Point, draw_unseen, plan_random
from rowlock.sweeps.sweep import POINTS_KEY, POINTS_SEAL_KEY, Sweep, points_data, read_object

SPACE = {"lr": "loguniform(1e-5,1)", "optimizer": "adam,sgd,lion"}
DRAW = "from tests.sweeps.test_learning import draw_tenth; print(draw_tenth())"


def reached(point: Point) -> float:
    """A loss that is lowest at a learning rate of 0.01 and the optimizer lion."""
    return abs(float(point[0]) - 0.01) + (point[1] != "lion")


def draw_tenth() -> Point:
    space = parse_space(SPACE)
    points = plan_random(space, 10, 7)
    values = {index: reached(point) for index, point in enumerate(points[:8])}
    return draw_point(space, 7, points, values, {8, 9}, is_max=False)


def test_the_same_record_gives_the_same_point_in_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == str(draw_tenth())


def test_it_learns() -> None:
    space = parse_space(SPACE)
    points = plan_random(space, 10, 1)
    for _ in range(25):
        points.append(
            draw_point(space, 1, points, {n: reached(point) for n, point in enumerate(points)}, (), is_max=False)
        )
    assert len(set(points)) == len(points)
    assert sum(point[1] == "lion" for point in points[-15:]) >= 10
    assert min(map(reached, points)) < 0.01


def test_a_small_space_is_tried_once_each() -> None:
    space = parse_space({"a": "1..3", "b": "x,y"})
    points: list[Point] = []
    for number in range(6):
        points.append(draw_point(space, 0, points, {n: float(n) for n in range(number)}, (), is_max=True))
    assert len(set(points)) == 6
    assert draw_unseen(space, 0, points) in points  # there is no other


def test_without_results_it_draws_at_random() -> None:
    space = parse_space(SPACE)
    assert draw_point(space, 3, [], {}, (), is_max=False) == draw_unseen(space, 3, [])
    assert draw_point(space, 3, [], {0: float("nan")}, (), is_max=False) == draw_unseen(space, 3, [])


# ---------------------------------------------------------------- the request and the object


def learning_sweep(samples: int = 20) -> Sweep:
    return make_sweep(search="tpe", samples=samples, seed=7, metric="loss", parameters=SPACE)


def test_the_first_points_are_drawn_at_the_submit() -> None:
    sweep = learning_sweep()
    assert (sweep.total, sweep.drawn_count, sweep.metric) == (20, STARTUP, "loss")
    assert list(sweep.points) == plan_random(parse_space(SPACE), STARTUP, 7)
    assert (learning_sweep(3).total, learning_sweep(3).drawn_count) == (3, 3)


def test_points_that_were_drawn_are_read_again_and_only_as_the_server_wrote_them() -> None:
    sweep = learning_sweep()
    made = config_map(sweep)
    points = [*sweep.points, ("0.5", "lion")]
    data = points_data(made, sweep, points, KEY)
    read = read_object({**made, "data": {**made["data"], **data}}, KEY)
    assert read is not None and list(read.points) == points and (read.drawn_count, read.total) == (11, 20)
    forged = data[POINTS_KEY].replace("0.5", "9.9")
    for other in (
        {**data, POINTS_KEY: forged},
        {POINTS_KEY: data[POINTS_KEY]},
        {**data, POINTS_SEAL_KEY: made["data"]["seal"]},
        {POINTS_KEY: 1, POINTS_SEAL_KEY: 2},
    ):
        assert read_object({**made, "data": {**made["data"], **other}}, KEY) is None


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"search": "tpe", "samples": 5}, "metric", "--search tpe goes by it"),
        ({"search": "tpe", "metric": "loss"}, "samples", "how many points"),
        ({"stop": "asha"}, "metric", "--stop asha goes by it"),
        ({"stop": "median", "metric": "loss"}, "stop", "asha"),
        ({"order": "max"}, "order", "add --metric NAME"),
        ({"metric": "loss", "order": "up"}, "order", "min"),
        ({"metric": "loss", "stopAfter": 3}, "stopAfter", "add --stop asha"),
        ({"metric": "loss", "stop": "asha", "stopAfter": 0}, "stopAfter", "1"),
        ({"metric": "x" * 201}, "metric", "200 printable characters"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], field: str, said: str) -> None:
    body = {"name": "tune", "parameters": {"lr": "1,2"}, "workload": {"projectId": "team-a", "spec": {"image": "i"}}}
    with pytest.raises(BadRequest) as refused:
        parse_request({**body, **fields})
    assert [cause.field for cause in refused.value.causes] == [field]
    assert said in refused.value.causes[0].message


def test_more_samples_than_points_are_refused() -> None:
    with pytest.raises(BadRequest, match="4 combinations, fewer than the 5 samples"):
        make_sweep(search="tpe", samples=5, metric="loss", parameters={"a": "1,2", "b": "1,2"})
