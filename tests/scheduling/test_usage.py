"""Time-based fair share: usage is measured, fades, survives a restart, and shifts what is over the quotas."""

from __future__ import annotations

import pytest
from tests.scheduling.cluster import Bench

from rowlock.api import DeleteOptions
from rowlock.kinds import POD, QUEUE
from rowlock.objects import dig
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.snapshot import SchedulerSettings
from rowlock.scheduling.policy.usage import QueueUsage

HOUR = 3600.0
TOTAL = (8000, 10**9, 400)


def test_half_of_what_was_counts_after_a_half_life() -> None:
    usage = QueueUsage(HOUR, measured_at=0.0)
    for hour in range(1, 21):
        usage.advance(hour * HOUR, {"a": (0, 0, 400), "b": (0, 0, 0)}, TOTAL)
    assert usage.shares["a"][2] == pytest.approx(1.0)
    usage.advance(21 * HOUR, {"b": (0, 0, 400)}, TOTAL)
    assert usage.shares["a"][2] == pytest.approx(0.5, abs=0.01)
    assert usage.shares["b"][2] == pytest.approx(0.5, abs=0.01)


def test_many_small_steps_are_one_large_one() -> None:
    once, often = QueueUsage(HOUR, measured_at=0.0), QueueUsage(HOUR, measured_at=0.0)
    once.advance(1000.0, {"a": (0, 0, 100)}, TOTAL)
    for step in range(1, 1001):
        often.advance(float(step), {"a": (0, 0, 100)}, TOTAL)
    assert often.shares["a"] == pytest.approx(once.shares["a"]) and often.weight == pytest.approx(once.weight)


def test_a_clock_that_stands_or_goes_back_adds_nothing() -> None:
    usage = QueueUsage(HOUR, measured_at=100.0)
    usage.advance(100.0, {"a": (0, 0, 400)}, TOTAL)
    usage.advance(50.0, {"a": (0, 0, 400)}, TOTAL)
    assert usage.shares == {} and usage.measured_at == 100.0


def test_what_was_saved_wrong_counts_as_nothing() -> None:
    usage = QueueUsage(HOUR)
    saved = {"nvidia.com/gpu": "much", "cpu": -3, "observedSeconds": True, "at": 90}
    usage.restore([{"metadata": {"name": "a"}, "status": {"usage": saved}}, {"metadata": {"name": "b"}}], 100.0)
    assert usage.shares == {"a": (0.0, 0.0, 0.0)} and usage.weight == 0.0 and usage.measured_at == 100.0


def bench(half_life: float) -> Bench:
    b = Bench(scheduler=Scheduler(SchedulerSettings(half_life=half_life)))
    b.node("n1", 4)
    for queue in ("a", "b"):
        b.queue(queue, quota=0)
    return b


def day(b: Bench) -> None:
    """Queue a holds everything for a day, with a scheduler that looks when its timer says so."""
    for i in range(4):
        b.pod(f"old-{i}", queue="a")
    b.turn()
    b.kubelet()
    end = b.now + 24 * HOUR
    while b.now < end:
        b.turn()
        assert b.again is not None and b.again <= 60
        b.now += 900


def fair(b: Bench) -> dict[str, str]:
    return {q: dig(b.all(QUEUE)[q], "status.fairShare")["nvidia.com/gpu"] for q in ("a", "b")}


def contend(b: Bench) -> dict[str, str]:
    """Both want everything; the shares that they may expect."""
    for i in range(4):
        b.pod(f"a-{i}", queue="a")
        b.pod(f"b-{i}", queue="b")
    for _ in range(3):
        b.now += 5
        b.turn()
    return fair(b)


def test_who_used_everything_for_a_day_gets_less_of_what_is_over() -> None:
    b = bench(6 * HOUR)
    day(b)
    assert contend(b) == {"a": "0", "b": "4"}


def test_without_a_half_life_the_past_does_not_count() -> None:
    b = bench(0)
    for i in range(4):
        b.pod(f"old-{i}", queue="a")
    b.turn()
    b.now += 24 * HOUR
    assert contend(b) == {"a": "2", "b": "2"}
    assert "usage" not in b.all(QUEUE)["a"]["status"]


def test_a_restart_goes_on_from_what_was_saved() -> None:
    b = bench(6 * HOUR)
    day(b)
    saved = b.all(QUEUE)["a"]["status"]["usage"]
    assert saved["nvidia.com/gpu"] > 0.9 and saved["observedSeconds"] > 6 * HOUR
    b.scheduler = Scheduler(SchedulerSettings(half_life=6 * HOUR))
    b.turn()
    assert b.scheduler.usage.shares["a"][2] == pytest.approx(saved["nvidia.com/gpu"], abs=0.01)
    assert contend(b) == {"a": "0", "b": "4"}


def test_it_is_forgiven_in_time() -> None:
    b = bench(HOUR)
    day(b)
    for i in range(4):
        b.store.core.delete(POD, "t", f"old-{i}", DeleteOptions(grace=0))
    b.store.commit()
    for _ in range(24):
        b.turn()
        b.now += HOUR
    assert contend(b) == {"a": "2", "b": "2"}


def test_a_queue_with_the_name_of_a_deleted_one_has_used_nothing() -> None:
    """Deleted and made again between two looks of the scheduler, too."""
    b = bench(6 * HOUR)
    day(b)
    for pod in list(b.all(POD).values()):
        b.store.core.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"], DeleteOptions(grace=0))
    old = b.all(QUEUE)["a"]
    b.store.core.delete(QUEUE, "", "a")
    b.store.core.create(QUEUE, {"metadata": {"name": "a"}, "spec": old["spec"]})
    b.store.commit()
    assert contend(b) == {"a": "2", "b": "2"}
