"""Which runs are stopped early, and runs that are suspended with their sweep and go on with it."""

from __future__ import annotations

import math

import pytest
from tests.sweeps.build import config_map, make_sweep

from rowlock import objects
from rowlock.api import Patch
from rowlock.objects import Object
from rowlock.sweeps.early_stop import StopRule, decide_stops, rung_values
from rowlock.sweeps.reconcile import ObservedSweep, has_ended, reconcile
from rowlock.sweeps.run_stops import is_stopped_with_sweep, patch_early_stop, patch_resume, patch_stop
from rowlock.sweeps.sweep import STOPPED_ANNOTATION
from rowlock.sweeps.template import build_run
from rowlock.workloads.history import suspended_sentence

LOSS, ACCURACY = StopRule("loss", False, 1), StopRule("accuracy", True, 1)


def test_a_rung_has_the_best_value_so_far() -> None:
    assert rung_values([5, 7, 4, 9, 1], LOSS) == (5, 4)
    assert rung_values([5, 7, 4], ACCURACY) == (5, 7)
    assert rung_values([5, 7, 4], StopRule("loss", False, 4)) == ()
    assert rung_values([3] * 100, LOSS) == (3,) * 5  # after 1, 3, 9, 27 and 81 values


def test_what_is_no_number_is_worse_than_any() -> None:
    assert rung_values([math.nan, math.nan, 2], LOSS)[1:] == (2,)
    rungs = {0: (1.0,), 1: (2.0,), 2: (math.nan,)}
    assert list(decide_stops(LOSS, rungs, {0, 1, 2})) == [1, 2]
    assert "its best loss was nan" in decide_stops(LOSS, rungs, {2})[2]


def test_the_best_third_goes_on() -> None:
    rungs = {index: (float(index),) for index in range(9)}
    assert list(decide_stops(LOSS, rungs, set(rungs))) == [3, 4, 5, 6, 7, 8]
    assert list(decide_stops(ACCURACY, rungs, set(rungs))) == [0, 1, 2, 3, 4, 5]
    assert list(decide_stops(LOSS, rungs, {1, 8})) == [8]  # others have ended, and count
    assert decide_stops(LOSS, rungs, {8})[8] == (
        "after 1 values its best loss was 8, and of 9 runs 8 had a better one by then"
    )


def test_a_run_is_compared_at_its_own_rung_only() -> None:
    rungs = {0: (1.0, 1.0), 1: (2.0, 0.5), 2: (3.0,), 3: (4.0,), 4: ()}
    assert list(decide_stops(LOSS, rungs, set(rungs))) == [
        2,
        3,
    ]  # two runs have come to the second rung: too few to compare


@pytest.mark.parametrize("values", [(1.0,), (1.0, 2.0), (1.0, 1.0, 1.0, 1.0)])
def test_few_runs_and_equal_ones_go_on(values: tuple[float, ...]) -> None:
    assert decide_stops(LOSS, {index: (value,) for index, value in enumerate(values)}, set(range(len(values)))) == {}


# ---------------------------------------------------------------- runs that are suspended


def patched(job: Object, patch: dict[str, object]) -> Object:
    """The job after a merge patch of annotations and of its run policy."""
    meta, spec = patch["metadata"], patch["spec"]
    assert isinstance(meta, dict) and isinstance(spec, dict)
    notes = {
        name: text for name, text in {**objects.annotations(job), **meta["annotations"]}.items() if text is not None
    }
    return {**job, "metadata": {**job["metadata"], "annotations": notes}, "spec": {**job["spec"], **spec}}


def test_a_run_that_is_stopped_early_has_ended_until_somebody_resumes_it() -> None:
    sweep = make_sweep()
    job = build_run(sweep, config_map(sweep), 1)
    stopped = patched(job, patch_early_stop(sweep.kind, "it is late"))
    assert (has_ended(job), has_ended(stopped)) == (False, True)
    assert (
        suspended_sentence(stopped)
        == "Its sweep stopped it early: it is late. `rowlock resume tune-1` starts it again."
    )
    resumed = {**stopped, "spec": {**stopped["spec"], "runPolicy": {"suspend": False}}}
    assert not has_ended(resumed)


def test_runs_are_suspended_and_resumed_with_their_sweep() -> None:
    sweep = make_sweep()
    job = build_run(sweep, config_map(sweep), 1)
    stopped = patched(job, patch_stop(sweep.kind, "tune"))
    assert is_stopped_with_sweep(stopped) and not has_ended(stopped)
    assert "`rowlock sweep resume tune` starts it again" in suspended_sentence(stopped)
    assert not is_stopped_with_sweep(patched(stopped, patch_resume(sweep.kind)))


def changes(annotations: dict[str, str], runs: dict[int, bool], suspended: set[int]) -> dict[str, bool]:
    """What is suspended (True) or resumed, by name."""
    sweep = make_sweep()
    decision = reconcile(ObservedSweep(config_map(sweep, annotations), sweep, runs, suspended=suspended))
    jobs = [write for write in decision.writes if isinstance(write, Patch) and write.kind is sweep.kind]
    return {write.name: write.patch["spec"]["runPolicy"]["suspend"] for write in jobs}


def test_only_runs_that_have_not_ended_are_suspended_and_only_those_resumed() -> None:
    now = {STOPPED_ANNOTATION: "now"}
    assert changes(now, {0: True, 1: False, 2: False}, {2}) == {"tune-1": True}
    assert changes(now, {0: True, 1: False}, {1}) == {}
    assert changes({}, {0: True, 1: False, 2: False}, {2}) == {"tune-2": False}
    assert changes({STOPPED_ANNOTATION: "true"}, {1: False, 2: False}, {2}) == {}
