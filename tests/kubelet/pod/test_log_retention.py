"""Whose logs of deleted pods go when there are too many."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rowlock.kubelet.pod.log_retention import KeptLogs, find_surplus


def logs(pod: str, count: int, first: float = 0.0, size: int = 1) -> list[KeptLogs]:
    return [KeptLogs(first + n, size, f"/data/logs/{pod}_{n}") for n in range(count)]


def kept(given: list[KeptLogs], most: int, most_bytes: int = 10**9) -> Counter[str]:
    return Counter(one.pod for one in set(given) - set(find_surplus(given, most, most_bytes)))


def test_a_pod_that_fails_for_hours_pushes_out_nobody_else() -> None:
    given = [
        *logs("team-a_done-master-0", 3),
        *logs("team-b_old-worker-1", 1),
        *logs("team-a_loop-master-0", 5000, 100.0),
    ]
    assert kept(given, 1000) == {"team-a_done-master-0": 3, "team-b_old-worker-1": 1, "team-a_loop-master-0": 996}


def test_nor_does_one_that_writes_a_lot() -> None:
    given = [*logs("a_small-0", 5, size=10), *logs("a_large-0", 50, 100.0, size=100)]
    assert kept(given, 1000, 1000) == {"a_small-0": 5, "a_large-0": 9}


def test_nor_does_a_namespace_with_many_pods() -> None:
    given = [one for n in range(900) for one in logs(f"a_job{n}-0", 1, 100.0 + n)] + logs("b_mine-0", 20)
    found = kept(given, 100)
    assert found["b_mine-0"] == 20 and sum(found.values()) == 100


def test_of_a_pod_the_oldest_go() -> None:
    given = logs("a_p", 10)
    assert find_surplus(given, 4, 10**9) == given[:6]


def test_nothing_goes_that_has_room() -> None:
    given = logs("a_p", 10)
    assert find_surplus(given, 10, 10) == []


def test_one_log_that_is_larger_than_all_the_room_goes() -> None:
    given = [*logs("a_huge", 1, size=100), *logs("b_small", 2, size=1)]
    assert kept(given, 10, 50) == {"b_small": 2}


@pytest.mark.parametrize("seed", range(20))
def test_no_room_is_wasted_and_none_overdrawn(seed: int) -> None:
    draw = random.Random(seed)
    given = [one for n in range(30) for one in logs(f"n{n % 4}_p{n}", draw.randrange(60), draw.random() * 100)]
    most = draw.randrange(1, 400)
    assert sum(kept(given, most).values()) == min(most, len(given))
