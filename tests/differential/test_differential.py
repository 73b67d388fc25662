"""The differential test's own parts; and a small run of it where a real control plane has been built.

`make differential` plays a thousand histories; `make test-real` these.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.differential.__main__ import Report, play
from tests.differential.histories import History, history
from tests.differential.jobs import SHAPE
from tests.differential.kubelet import VERBS
from tests.differential.picture import differences, tidy
from tests.differential.playing import Pace, Result, Theatre, smaller, unmatched

HISTORIES = int(os.environ.get("ROWLOCK_HISTORIES", "60"))


def test_a_seed_names_a_history_for_ever() -> None:
    assert [history(seed) for seed in range(50)] == [history(seed) for seed in range(50)]
    assert len({str(history(seed).json()) for seed in range(50)}) == 50


def test_histories_are_of_all_kinds_and_use_every_verb() -> None:
    some = [history(seed) for seed in range(400)]
    assert {h.kind for h in some} == set(SHAPE)
    assert {step[0] for h in some for step in h.steps} == set(VERBS)
    assert all(h.steps[0][0] in ("create", "foreign", "labelled") for h in some)


def test_a_history_survives_being_written_down() -> None:
    first = history(7)
    assert History.read(first.json()) == first


def picture(**given: Any) -> dict[str, Any]:
    return {"answers": [], "job": {"conditions": []}, "pods": {}, "others": {}, "events": [], "told": {}, **given}


def test_equal_pictures_do_not_differ() -> None:
    assert differences(picture(events=["Normal A b"]), picture(events=["Normal A b"])) == []


def test_a_difference_names_its_place_and_both_sides() -> None:
    real, ours = (
        picture(pods={"job-worker-0": {"phase": "Running"}}),
        picture(pods={"job-worker-0": {"phase": "Failed"}}),
    )
    assert differences(real, ours) == ['.pods.job-worker-0.phase: real "Running", ours "Failed"']
    assert differences(real, picture()) == ['.pods.job-worker-0: real {"phase": "Running"}, ours has none']


def test_missing_and_surplus_events_differ() -> None:
    assert differences(picture(events=["Normal A b"]), picture()) == ["event only of the real one: Normal A b"]
    assert differences(picture(), picture(events=["Normal A b"])) == ["event only of ours: Normal A b"]


def test_events_that_the_operator_had_no_allowance_for_are_no_difference() -> None:
    spent = {"Normal": 25}
    assert differences(picture(told=spent), picture(events=["Normal A b"])) == []
    assert differences(picture(told=spent), picture(events=["Warning A b"])) != []
    assert differences(picture(told=spent, events=["Normal A b"]), picture()) != []


@pytest.mark.parametrize("state", ["True", "False"])
def test_a_pod_that_comes_again_after_the_jobs_failure_is_a_race(state: str) -> None:
    job = {"conditions": [["Failed", state, "XGBoostJobFailed", "it failed"]]}
    pod = {"life": 2, "phase": "Pending"}
    real, ours = picture(job=job, pods={"job-master-0": pod}), picture(job=job)
    assert (differences(real, ours) == []) is (state == "True")
    assert differences(picture(job=job, pods={"job-master-0": {**pod, "life": 1}}), ours) != []
    assert differences(ours, real) != []


def test_a_service_that_goes_with_a_failed_jobs_pod_is_a_race() -> None:
    job = {"conditions": [["Failed", "True", "XGBoostJobFailed", "it failed"]]}
    service = {"Service/job-master-0": {"life": 1}}
    deleted = ["Normal SuccessfulDeleteService Deleted service: job-master-0"]
    real, ours = picture(job=job, events=deleted), picture(job=job, others=service)
    assert differences(real, ours) == []
    assert differences(ours, real) != []  # ours keeps it
    assert differences(picture(events=deleted), picture(others=service)) != []  # the job has not failed
    pods = {"job-master-0": {"life": 1, "phase": "Running"}}
    there = differences(picture(job=job, events=deleted, pods=pods), picture(job=job, others=service, pods=pods))
    assert there != []  # the pod is still there


def test_a_list_in_a_message_is_compared_without_its_order() -> None:
    assert tidy("x: [b: no, a: yes]") == tidy("x: [a: yes, b: no]")
    assert tidy("x: [b: no, a: yes]") != tidy("x: [b: no, a: no]")
    assert tidy("a b") != tidy("b a")


def test_shrinking_cuts_what_comes_after_and_then_drops_steps_and_parts() -> None:
    full = next(found for found in map(history, range(50)) if len(found.steps) > 4)
    (cut,) = smaller(Result(full, ("x",), 2))
    assert cut.steps == full.steps[:3]
    less = list(smaller(Result(cut, ("x",), 2)))
    assert any(len(h.steps) == 2 for h in less)
    assert any(len(str(h.job)) < len(str(cut.job)) for h in less)
    assert all(len(str(h.json())) <= len(str(cut.json())) + 2 for h in less)


class Scripted(Theatre):
    """A theatre whose plays are written down: for each, the pod's phase at the real one and at ours."""

    def __init__(self, *script: str) -> None:
        self.pace, self.script = Pace(), list(script)

    async def once(self, history: History) -> Result:
        real, ours = self.script.pop(0).split("/")
        shown = tuple(picture(pods={"job-worker-0": {"life": 1, "phase": phase}}) for phase in (real, ours))
        wrong = tuple(differences(*shown))
        return Result(history, wrong, 0 if wrong else -1, shown=((shown[0], shown[1]),))


@pytest.mark.parametrize(
    ("script", "differs", "plays"),
    [
        ("A/A", False, 1),
        ("A/B B/B", False, 2),
        ("B/A A/B", False, 2),
        ("A/B A/B A/B A/B A/B A/B A/B A/B B/B", False, 9),  # the real one does what ours does, if seldom
        ("A/B" + " A/B" * 8, True, 9),
        ("A/B A/A A/A A/A A/B A/A A/A A/A A/A", True, 9),  # twice in nine: ours is random, the real one is not
        ("A/B A/A A/A A/A A/A A/A A/A A/A A/A", False, 9),
        ("A/C B/A A/B B/C A/A A/A A/A A/A A/A", True, 9),  # the real one is random, and never does C
    ],
)
def test_what_ours_does_twice_and_the_real_one_never_is_a_difference(script: str, differs: bool, plays: int) -> None:
    result = asyncio.run(Scripted(*script.split()).judged(history(7)))
    assert (bool(result.wrong), result.tries) == (differs, plays)


def test_only_the_same_step_of_another_play_excuses() -> None:
    a, b = (picture(pods={"job-worker-0": {"life": 1, "phase": phase}}) for phase in "AB")
    first = Result(history(7), ("x",), 1, shown=((a, a), (a, b)))
    assert unmatched([first, Result(history(7), shown=((b, b),))]) == [first]
    assert unmatched([first, Result(history(7), shown=((a, a), (b, b)))]) == []


def test_how_many_were_cut_short_is_said_and_limited() -> None:
    assert Report(played=1000, again=9, cut=4).text() == (
        "1000 histories, 9 played again; 4 were cut short by a race of the real operator (20 may be)"
    )
    assert Report(played=10).cut_allowed == 2


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_random_histories_end_alike_on_the_real_operator_and_on_ours(tmp_path: Path) -> None:
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    for part in ("real", "ours"):
        (tmp_path / part).mkdir()
    with (
        real_cluster(tmp_path / "real", "--operator") as real,
        embedded_server(tmp_path / "ours", "rowlock.serve", "--without", "kubelet,scheduler") as ours,
    ):
        report = asyncio.run(play(real, ours, [history(seed) for seed in range(HISTORIES)], together=16))
    print(report.text())
    assert report.played == HISTORIES
    assert report.cut <= report.cut_allowed, report.text()
    assert not report.wrong, "\n".join(f"seed {r.history.seed}: {r.history.json()}\n{r.text()}" for r in report.wrong)
