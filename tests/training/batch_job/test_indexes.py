"""Sets of completion indexes and their text."""

from __future__ import annotations

import time

import pytest

from rowlock.training.batch_job.indexes import Indexes, format_problem, of_numbers, parse


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((2, 0, 1, 5), "0-2,5"), ((1, 2, 4, 5, 7), "1,2,4,5,7")],
)
def test_text_of_a_set(numbers: tuple[int, ...], text: str) -> None:
    found = of_numbers(numbers)
    assert (str(found), len(found)) == (text, len(numbers))
    assert parse(text, 100) == found


def test_what_a_status_says_is_cut_at_the_completions_and_nonsense_is_passed_over() -> None:
    assert str(parse("0-2,5,x,9-4,7-20,30", 10)) == "0-2,5,7-9"


def test_sets_are_joined_and_compared() -> None:
    joined = of_numbers((0, 1)) | of_numbers((2, 8))
    assert str(joined) == "0-2,8" and joined.overlap(of_numbers((1, 8, 9))) == 2
    assert 1 in joined and 3 not in joined


def test_the_lowest_that_are_missing() -> None:
    assert parse("0-2,5", 9).lowest_missing(3, 9) == [3, 4, 6]
    assert Indexes().lowest_missing(5, 2) == [0, 1]


def test_two_billion_indexes_cost_no_more_than_two() -> None:
    before = time.process_time()
    found = parse("0-1999999999", 2_000_000_001)
    assert len(found) == 2_000_000_000 and found.lowest_missing(5, 2_000_000_001) == [2_000_000_000]
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ""),
        ("0-2,4", ""),
        ("0-5", 'too large index: "5"'),
        ("3-1", "non-increasing order, previous: 3, current: 1"),
        ("2,1", "non-increasing order, previous: 2, current: 1"),
        ("a", 'cannot convert string to integer for index: "a"'),
        ("1-2-3", "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text(text: str, problem: str) -> None:
    assert format_problem(text, 5)[1] == problem
