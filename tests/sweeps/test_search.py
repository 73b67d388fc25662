"""What users write for a sweep, and the points that it stands for."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from rowlock.errors import BadRequest
from rowlock.sweeps.parameters import Distribution, Values, parse_space, variable_name
from rowlock.sweeps.placeholders import fill
from rowlock.sweeps.points import plan_grid, plan_random


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("1e-4,3e-4", ("1e-4", "3e-4")),
        ("1..5", ("1", "2", "3", "4", "5")),
        ("-1..1,10", ("-1", "0", "1", "10")),
        ("adam, sgd", ("adam", "sgd")),
        ("../data,./x", ("../data", "./x")),
        ("f(x)", ("f(x)",)),
        (7, ("7",)),
        ([1, 0.5, True, "a,b"], ("1", "0.5", "true", "a,b")),
    ],
)
def test_values_stay_as_they_are_written(written: Any, values: tuple[str, ...]) -> None:
    assert parse_space({"lr": written}) == {"lr": Values(values)}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "has no value: write lr=1,2,3."),
        ("1,,2", "between two commas"),
        ("1,1", "has the value 1 twice"),
        ("5..1", "ends before it begins"),
        ("0..1000", "1,001 numbers"),
        ("0..1e9", None),
        ("0.1..0.5", "whole numbers at both ends"),
        ("uniform(2,1)", "the lower one first"),
        ("loguniform(0,1)", "above 0"),
        ("logunifrom(1,2)", "there is no logunifrom()"),
        ("a\nb", "printable"),
        ("x" * 1001, "1,000 printable"),
        ([], "has no value"),
        ([[1]], "a list of these"),
        ({"min": 1}, "a list of these"),
        (math.nan, "a list of these"),
        ("1..1000," * 300_000, "more than 1,000 values"),
        ("1..1" * 300_000 + "x", "1,000 printable"),
        (list(range(1001)), "more than 1,000 values"),
    ],
)
def test_what_is_no_parameter_is_refused(written: Any, said: str | None) -> None:
    if said is None:
        assert parse_space({"lr": written}) == {"lr": Values((written,))}
        return
    with pytest.raises(BadRequest, match="lr") as refused:
        parse_space({"lr": written})
    assert said in refused.value.message
    assert refused.value.causes[0].field == "parameters.lr"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "a sweep needs parameters"),
        (["1x"], "is no name"),
        (["Index"], "the number of the run"),
        (["a.b", "a_b"], "would be the same variable, $ROWLOCK_SWEEP_A_B"),
        ([f"p{n}" for n in range(33)], "32 parameters at most"),
    ],
)
def test_names_of_parameters(names: list[str], said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_space(dict.fromkeys(names, "1"))
    assert said in refused.value.message


def test_what_was_made_to_be_slow_is_not() -> None:
    """A range stands for a thousand values, a pattern may be searched for at every place, and a narrow range has few different points."""
    began = time.process_time()
    space = parse_space({f"p{n}": [f"{'x' * 80}{one}" for one in range(1_000)] for n in range(32)})
    assert all(isinstance(one, Values) and len(one.values) == 1_000 for one in space.values())
    with pytest.raises(BadRequest, match="only 1 different points"):
        plan_random(parse_space({f"p{n}": "uniform(1,1.000001)" for n in range(32)}), 1_000, 1)
    assert time.process_time() - began < 20


def test_variables_are_named_after_parameters() -> None:
    assert variable_name("lr") == "ROWLOCK_SWEEP_LR"
    assert variable_name("optimizer.weight-decay") == "ROWLOCK_SWEEP_OPTIMIZER_WEIGHT_DECAY"


def test_a_grid_has_every_combination_and_the_last_parameter_changes_fastest() -> None:
    space = parse_space({"lr": "0.1,0.2", "seed": "1..3"})
    assert plan_grid(space) == [(lr, seed) for lr in ("0.1", "0.2") for seed in ("1", "2", "3")]


def test_a_grid_of_too_many_runs_is_refused() -> None:
    assert len(plan_grid(parse_space({"a": "1..10", "b": "1..100"}))) == 1000
    with pytest.raises(BadRequest, match="1,100 combinations"):
        plan_grid(parse_space({"a": "1..11", "b": "1..100"}))
    with pytest.raises(BadRequest, match="a grid needs a list"):
        plan_grid(parse_space({"a": "uniform(1,2)"}))


def test_a_random_search_is_the_same_for_the_same_seed_on_every_machine() -> None:
    space = parse_space({"lr": "loguniform(1e-5,1e-2)", "seed": "1..3"})
    assert plan_random(space, 3, 7) == plan_random(space, 20, 7)[:3]
    assert plan_random(space, 3, 7) != plan_random(space, 3, 8)
    assert plan_random(space, 2, 0) == RECORDED


RECORDED = [("4.70488e-05", "2"), ("1.01854e-05", "1")]
"""Recorded once: a server of another version must draw the same."""


def test_a_random_search_of_lists_draws_each_combination_once() -> None:
    space = parse_space({"a": "1..5", "b": "1..4"})
    everything = plan_random(space, 20, 3)
    assert sorted(everything) == sorted(plan_grid(space)) and everything != plan_grid(space)
    with pytest.raises(BadRequest, match="20 combinations, fewer than the 21 samples"):
        plan_random(space, 21, 3)


def test_a_large_space_is_drawn_from_without_repeats() -> None:
    space = parse_space({name: "1..30" for name in "abc"})
    points = plan_random(space, 1000, 1)
    assert len(set(points)) == 1000
    assert {point[0] for point in points} == {str(n) for n in range(1, 31)}


def test_drawn_values_lie_within_their_range() -> None:
    linear, log = Distribution(-1, 3, is_log=False), Distribution(1e-5, 1e-1, is_log=True)
    assert [linear.value_at(f) for f in (0, 0.25, 0.5)] == ["-1", "0", "1"]
    assert [log.value_at(f) for f in (0, 0.25, 0.5, 0.75)] == ["1e-05", "0.0001", "0.001", "0.01"]


# ---------------------------------------------------------------- placeholders


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("--lr={lr}", "--lr=0.1"),
        ("{lr}{lr}-{index}", "0.10.1-3"),
        ("{{lr}}", "{lr}"),
        ("${{HOME}}/{lr}", "${HOME}/0.1"),
        ('{"lr": {lr}}', '{"lr": 0.1}'),
        ('{{"lr": {lr}}}', '{"lr": 0.1}'),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ('{"a":{"b":{lr}}}', '{"a":{"b":0.1}}'),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("{}", "{}"),
        ("{ lr }", "{ lr }"),
        ("{0}", "{0}"),
        ("}}{{", "}}{"),
        ("a}b{c", "a}b{c"),
        ("", ""),
    ],
)
def test_placeholders(word: str, filled: str) -> None:
    assert fill(word, {"lr": "0.1", "index": "3"})[0] == filled


def test_an_unknown_placeholder_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadRequest) as refused:
        fill("--x {learning_rat}", {"learning_rate": "1", "index": "0"})
    assert 'Did you mean "learning_rate"?' in refused.value.message
    assert "Write {{learning_rat}}" in refused.value.message


def test_a_value_with_braces_is_not_looked_at_again() -> None:
    assert fill("{a}{b}", {"a": "{b}", "b": "}}"})[0] == "{b}}}"
