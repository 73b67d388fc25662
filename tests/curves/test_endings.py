"""How figures ended: pure, by equality."""

import math

import pytest

from rowlock.curves.endings import MIN_POINTS, Point, last_place, not_finite_since, read_text, unchanged_since


def log(*losses: float, name: str = "loss") -> str:
    return "".join(f"step={step} {name}={loss}\n" for step, loss in enumerate(losses))


def test_a_loss_that_became_nan_is_found_where_it_did() -> None:
    point = not_finite_since(read_text(log(2.0, 1.0, math.nan, 0.5, math.nan, math.nan)))
    assert point is not None
    assert (point.metric, point.axis, point.x) == ("loss", "step", 4)


def test_the_metric_that_broke_first_is_told() -> None:
    text = "".join(f"step={s} loss={math.nan if s > 6 else 1} val_loss={math.inf if s > 3 else 1}\n" for s in range(9))
    point = not_finite_since(read_text(text))
    assert point is not None
    assert (point.metric, point.x, point.value) == ("val_loss", 4, math.inf)


@pytest.mark.parametrize(
    "text",
    [log(2.0, math.nan, 1.0), log(2.0, 1.0), log(math.nan, math.nan, name="grad_norm"), "no figures\n", ""],
    ids=["recovered", "finite", "no loss", "no figures", "empty"],
)
def test_what_is_finite_at_the_end_is_left_alone(text: str) -> None:
    assert not_finite_since(read_text(text)) is None


def test_a_loss_that_never_changed() -> None:
    assert unchanged_since(read_text(log(*[2.3026] * MIN_POINTS))) == Point("loss", "step", 0, 2.3026)


@pytest.mark.parametrize(
    "text",
    [
        log(*[2.3026] * (MIN_POINTS - 1)),
        log(*[2.3026] * MIN_POINTS, 2.3025),
        log(*[0.0] * MIN_POINTS),
        log(*[0.5] * MIN_POINTS, name="lr"),
        log(*[0.5] * MIN_POINTS, name="val_loss"),
    ],
    ids=["few", "moves at last", "zero", "no loss", "an evaluation"],
)
def test_what_may_stand_still_is_left_alone(text: str) -> None:
    assert unchanged_since(read_text(text)) is None


def test_the_last_place_and_the_interval_of_its_lines() -> None:
    text = "".join(f"step={step} loss={1 / (step + 1)}\n" for step in (0, 10, 20))
    assert last_place(read_text(text)) == (Point("loss", "step", 20, 1 / 21), 10)
    assert last_place(read_text("step=1 loss=2\n")) is None
