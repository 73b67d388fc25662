"""Quantities as apimachinery reads them, also absurd ones."""

from __future__ import annotations

import pytest

from rowlock import errors, quantity

HUGE = "9" * 30


@pytest.mark.parametrize(
    ("text", "whole"), [("1", True), ("1500m", False), (HUGE, True), ("0.1Ki", False), ("1Ei", True)]
)
def test_whole_or_with_a_fraction(text: str, whole: bool) -> None:
    assert quantity.is_whole(text) is whole


@pytest.mark.parametrize("text", [HUGE, HUGE + "Ei", "9" * 99, "1e99", "-" + HUGE, "0." + "0" * 90 + "1"])
def test_absurd_numbers_are_numbers(text: str) -> None:
    assert quantity.canonicalize(text)
    assert quantity.integer_value(text) >= quantity.parse(text) - 1
    assert isinstance(quantity.millis(text), int)


@pytest.mark.parametrize("text", ["٣", "１２", "²", "1٣Ki", "1e٣", "NaN", "Infinity", "1e999", "", " 1", "1\n"])
def test_only_ascii_digits_are_digits(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="quantities must match"):
        quantity.parse(text)


@pytest.mark.timeout(60)
def test_a_duration_costs_its_length_and_no_more_than_go_holds() -> None:
    """A pod's annotation of 250,000 digits held the loop for minutes; hours that are infinite have no end to tell of."""
    assert quantity.parse_duration("9" * 1_000_000) is None
    assert quantity.parse_duration("9" * 400 + "h") is None and quantity.parse_duration("1m" * 1_000_000) is None
    assert quantity.parse_duration("2562047h47m16s") == 9223372036.0 and quantity.parse_duration("2562048h") is None
    assert quantity.parse_duration("1h30m") == 5400.0 and quantity.parse_duration("1.5s") == 1.5
