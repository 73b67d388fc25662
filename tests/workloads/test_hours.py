"""GPU hours of a run: what a pod held, used, left idle and wasted, how long its job waited, each within a window."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.figures.hours import (
    HeldTime,
    Hours,
    Window,
    hold_of,
    steps_of,
    waited_seconds,
    wasted_seconds,
)
from rowlock.workloads.figures.usage_series import UsageSample, UsageSeries

NAN = math.nan
ALWAYS = Window(0.0, 1e12)


def stamp(at: float) -> str:
    return objects.timestamp(at)


def pod(
    phase: str = "Running", *, scheduled: float = 1000.0, ended: float | None = None, code: int = 0, **meta: Any
) -> Object:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(scheduled)}]
    end = {"terminated": {"exitCode": code, "finishedAt": stamp(ended)}} if ended is not None else {"running": {}}
    return {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": stamp(900.0), **meta},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": [{"state": end}]},
    }


def test_a_pod_holds_from_its_node_to_its_end() -> None:
    assert hold_of(pod(), None, 5000.0) == HeldTime(1000.0, 5000.0)
    assert hold_of(pod("Succeeded", ended=1500.0), None, 5000.0) == HeldTime(1000.0, 1500.0)
    assert hold_of(pod(ended=1500.0), 2000.0, 5000.0) == HeldTime(1000.0, 2000.0), (
        "it runs while a container may start again"
    )
    assert hold_of(pod("Failed", ended=1500.0, code=1), 2000.0, 5000.0) == HeldTime(1000.0, 1500.0)
    assert hold_of(pod(), 2000.0, 1800.0) == HeldTime(1000.0, 1800.0)
    assert hold_of(pod(scheduled=3000.0), 2000.0, 9000.0) == HeldTime(3000.0, 3000.0), (
        "clocks differ: never less than nothing"
    )
    waiting = {**pod(), "spec": {}}
    assert hold_of(waiting, None, 5000.0) is None


def test_malformed_times_are_none() -> None:
    broken = pod(creationTimestamp="yesterday")
    broken["status"]["conditions"][0]["lastTransitionTime"] = "soon"
    assert hold_of(broken, None, 100.0) == HeldTime(0.0, 100.0)


def test_usage_is_weighed_with_gpus_and_time() -> None:
    hours = Hours()
    steps = [
        (1000.0, 1100.0, 50.0, 1.0),
        (1100.0, 1200.0, 0.0, 1.0),
        (1200.0, 1300.0, NAN, 0.0),
        (1300.0, 1400.0, NAN, NAN),
    ]
    hours.add_pod(2.0, HeldTime(1000.0, 1400.0), steps, 0.0, ALWAYS)
    assert (hours.held, hours.measured, hours.watched) == (800.0, 400.0, 600.0)
    assert hours.used == 2 * 100 * 0.5
    assert hours.idle == 2 * (100 + 100), "of the GPU, and, where that is not measured, of the CPUs"


def test_usage_beyond_the_hold_does_not_count() -> None:
    hours = Hours()
    hours.add_pod(1.0, HeldTime(1000.0, 1100.0), [(0.0, 2000.0, 100.0, 1.0)], 0.0, ALWAYS)
    assert (hours.held, hours.used) == (100.0, 100.0)


@pytest.mark.parametrize("seed", range(30))
def test_windows_add_up(seed: int) -> None:
    """A year is the sum of its weeks: no figure is counted twice, and none is lost."""
    draw = random.Random(seed)
    hold = HeldTime(draw.uniform(0, 500), draw.uniform(500, 1000))
    times = sorted(draw.uniform(0, 1000) for _ in range(20))
    steps = [
        (a, b, draw.choice([NAN, 0.0, draw.uniform(0, 100)]), draw.uniform(0, 0.1))
        for a, b in itertools.pairwise(times)
    ]
    phases = [(at, draw.choice(["Pending", "Running", "Stopped"]), "") for at in times[:5]]
    cuts = [0.0, *sorted(draw.uniform(0, 1000) for _ in range(5)), 1000.0]

    def figures(window: Window) -> list[float]:
        hours = Hours(waited=waited_seconds(phases, 1000.0, window))
        hours.add_pod(3.0, hold, steps, window.seconds(*hold), window)
        return [hours.held, hours.measured, hours.watched, hours.used, hours.idle, hours.wasted, hours.waited]

    parts = [figures(Window(a, b)) for a, b in itertools.pairwise(cuts)]
    assert figures(Window(0.0, 1000.0)) == pytest.approx([sum(column) for column in zip(*parts, strict=True)])


def test_what_is_read_back_from_the_archive_is_what_was_measured() -> None:
    series = UsageSeries(1000.0)
    for number in range(1, 1001):  # more than are kept one by one
        series.add(1000.0 + 2 * number, UsageSample(cpu_cores=1.0, gpu_utilization=30.0))
    hours = Hours()
    hours.add_pod(4.0, HeldTime(1000.0, 3000.0), steps_of(series.to_json()), 0.0, ALWAYS)
    assert hours.measured == pytest.approx(8000.0) and hours.used == pytest.approx(2400.0, rel=1e-5)
    assert list(steps_of({})) == [] and next(iter(steps_of({"start": 0, "times": [1.0], "columns": {}})))[:2] == (
        0.0,
        1.0,
    )


def waste(of: Object, lives: dict[str, list[float | None]] | None = None, *, failed: bool = False) -> float:
    return wasted_seconds(of, HeldTime(1000.0, 2000.0), lives or {}, ALWAYS, has_run_failed=failed)


def test_all_that_a_failed_run_held_is_wasted() -> None:
    assert waste(pod("Succeeded", ended=2000.0), failed=True) == 1000.0
    assert waste(pod("Succeeded", ended=2000.0)) == 0.0


def test_a_pod_wastes_until_its_container_was_started_again() -> None:
    lives: dict[str, list[float | None]] = {
        "u/0": [1010.0, 1400.0],
        "u/1": [1410.0, 1700.0],
        "u/2": [1710.0, None],
        "v/9": [1999.0, None],
    }
    assert waste(pod(), lives) == 710.0
    assert waste(pod("Failed", ended=2000.0, code=1), lives) == 1000.0


@pytest.mark.parametrize(
    ("code", "ended", "wasted"),
    [(1, 2000.0, 1000.0), (143, 2000.0, 0.0), (137, 2000.0, 0.0), (137, 1960.0, 1000.0), (1, 1960.0, 1000.0)],
)
def test_a_pod_that_was_told_to_end_has_not_failed(code: int, ended: float, wasted: float) -> None:
    """It was deleted at 1970: after that, SIGTERM and SIGKILL are the cluster's."""
    going: dict[str, Any] = {"deletionTimestamp": stamp(2000.0), "deletionGracePeriodSeconds": 30}
    assert waste(pod("Failed", ended=ended, code=code, **going)) == wasted


def test_waiting_is_what_is_before_a_start() -> None:
    phases = [
        (0.0, "Creating", ""), (5.0, "Pending", ""), (100.0, "Initializing", ""), (110.0, "Running", ""), (200.0, "Stopped", ""),
        (300.0, "Resuming", ""), (310.0, "Pending", ""),
    ]  # fmt: skip
    assert waited_seconds(phases, 400.0, ALWAYS) == 100 + 100
    assert waited_seconds(phases, 400.0, Window(90.0, 350.0)) == 10 + 50
    assert waited_seconds([], 400.0, ALWAYS) == 0
