"""Scenario 63, over time: a gang of the whole cluster against an endless stream of small jobs in its own queue."""

from __future__ import annotations

import pytest
import yaml

from rowlock.scheduling.model.snapshot import SchedulerSettings
from rowlock.simulator import trace_generator
from rowlock.simulator.engine import JobRun, SimulatedNodes, Simulation
from rowlock.simulator.metrics import gpu_hours
from rowlock.simulator.trace import parse_trace

LONGEST, AFTER, COMES = 600, 300, 1000
TRACE = """
projects: [{{name: a, quota: -1}}]
jobs:
- {{name: small, project: a, gpus: 1, duration: {longest}, count: 400, every: 70, preemptible: {soft}, checkpoint: 60}}
- {{name: big, project: a, pods: 2, gpus: 4, duration: 100, at: {comes}, preemptible: {soft}}}
"""


def big(reserve_after: float, *, soft: bool) -> JobRun:
    text = TRACE.format(longest=LONGEST, comes=COMES, soft=str(soft).lower())
    trace = parse_trace(yaml.safe_load(text))
    story = Simulation(trace, SimulatedNodes(2, 4), settings=SchedulerSettings(reserve_after=reserve_after)).run()
    assert all(r.ended_at is not None for r in story.runs.values()), "the others run too"
    return story.runs["big"]


@pytest.mark.parametrize("soft", [False, True], ids=["nobody yields", "guests yield"])
def test_it_starts_when_those_before_it_have_ended(soft: bool) -> None:
    run = big(AFTER, soft=soft)
    assert run.first_started is not None and run.first_started - COMES <= AFTER + LONGEST + 30


def test_without_a_reservation_it_is_overtaken_for_hours() -> None:
    run = big(0, soft=False)
    assert run.first_started is not None and run.first_started - COMES > 4 * 3600


def test_the_one_who_used_less_comes_first_with_time_based_fair_share() -> None:
    """Scenario 62 over time: a had everything for two hours; then both want it, and nobody has a quota."""
    text = """
projects: [{name: a, quota: 0}, {name: b, quota: 0}]
jobs:
- {name: early, project: a, gpus: 1, duration: 2h, count: 4}
- {name: a, project: a, gpus: 1, duration: 30m, count: 12, at: 110m}
- {name: b, project: b, gpus: 1, duration: 30m, count: 12, at: 110m}
"""

    def third_hour(half_life: float) -> list[float]:
        settings = SchedulerSettings(half_life=half_life, actions=("allocate",))
        story = Simulation(parse_trace(yaml.safe_load(text)), SimulatedNodes(1, 4), settings=settings).run()
        return [
            gpu_hours(story.points, 3 * 3600, "held", at) - gpu_hours(story.points, 2 * 3600, "held", at)
            for at in (0, 1)
        ]

    assert third_hour(0)[0] == pytest.approx(third_hour(0)[1], abs=0.1)
    mine, theirs = third_hour(7200)
    assert theirs > 1.5 * mine


def test_reservations_do_not_evict_the_same_guests_over_and_over() -> None:
    """A gang whose queue would lose the room again at once must not get it at the cost of others, time after time."""
    trace = trace_generator.generate_trace(trace_generator.parse_options("jobs=250,seed=3,projects=5"), 6, 8)
    story = Simulation(trace, SimulatedNodes(6, 8), settings=SchedulerSettings(reserve_after=300.0)).run()
    assert all(r.ended_at is not None for r in story.runs.values())
    assert story.evictions_by_action.get("reserve", 0) <= 30 and max(r.evictions for r in story.runs.values()) <= 30
