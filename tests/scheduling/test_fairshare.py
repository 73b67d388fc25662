"""The worked examples of fair-share division."""

from __future__ import annotations

import pytest

from rowlock.scheduling.policy.fairshare import QueueClaim, divide_resource


def claims() -> list[QueueClaim]:
    """Quota, limit, weight, priority, wanted: A, B, C, D of the design page, in hundredths of a GPU."""
    return [
        QueueClaim(600, -1, 3, 100, 2000, order=0),
        QueueClaim(400, -1, 1, 100, 500, order=1),
        QueueClaim(400, 800, 2, 100, 1200, order=2),
        QueueClaim(0, -1, 1, 100, 900, order=3),
    ]


@pytest.mark.parametrize(
    ("total", "expected"),
    [(2000, [800, 500, 600, 100]), (3000, [1400, 500, 800, 300])],
)
def test_worked_examples(total: int, expected: list[int]) -> None:
    given = claims()
    divide_resource(total, given, 100)
    assert [c.fair_share for c in given] == expected


def test_run_ai_documented_case() -> None:
    """Weights 2:3:1, 20 GPUs to share beyond quotas of 10, 6 and 0: project 2 gets 16, project 3 gets 3."""
    given = [
        QueueClaim(1000, -1, 2, 100, 5000, order=0),
        QueueClaim(600, -1, 3, 100, 5000, order=1),
        QueueClaim(0, -1, 1, 100, 5000, order=2),
    ]
    divide_resource(3600, given, 100)
    assert [given[1].fair_share, given[2].fair_share] == [1600, 300]


def test_a_higher_priority_is_served_first() -> None:
    given = [QueueClaim(0, -1, 1, 100, 800, order=0), QueueClaim(0, -1, 1, 200, 800, order=1)]
    divide_resource(800, given, 100)
    assert [c.fair_share for c in given] == [0, 800]


def test_oversubscribed_quotas_do_not_crash() -> None:
    given = [QueueClaim(800, -1, 1, 100, 800, order=0), QueueClaim(800, -1, 1, 100, 800, order=1)]
    divide_resource(800, given, 100)
    assert [c.fair_share for c in given] == [800, 800]


def test_who_used_more_gets_less_of_the_rest() -> None:
    given = [QueueClaim(0, -1, 1, 100, 1000, usage=0.9, order=0), QueueClaim(0, -1, 1, 100, 1000, usage=0.1, order=1)]
    divide_resource(1000, given, 100)
    assert given[0].fair_share < given[1].fair_share
    assert given[0].fair_share + given[1].fair_share == 1000


def test_a_little_usage_is_not_better_than_none() -> None:
    """Who used nothing is counted by the same formula as who used something."""
    given = [QueueClaim(0, -1, 1, 100, 800, usage=0.0, order=0), QueueClaim(0, -1, 1, 100, 800, usage=0.001, order=1)]
    divide_resource(400, given, 100)
    assert [c.fair_share for c in given] == [200, 200]
