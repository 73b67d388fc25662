"""`rowlock queue move`: the order of waiting jobs of one project and priority, and who may change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.rest.cluster_view.test_cluster_view import waiting
from tests.rest.served import Served

from rowlock import kinds, objects
from rowlock.errors import BadRequest
from rowlock.rest.cluster_view import queue_move
from rowlock.rest.cluster_view.queue import waiting_gangs
from rowlock.rest.cluster_view.queue_move import move_uid, new_order
from rowlock.scheduling.model.from_objects import QUEUE_ORDER_ANNOTATION, parse_queue
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Shape, Snapshot, Status, Task
from rowlock.scheduling.plan import PlannedBind, PlannedEviction
from rowlock.scheduling.planner import plan


@pytest.mark.parametrize(
    ("place", "anchor", "expected"),
    [
        ("first", "", "cabd"),
        ("last", "", "abdc"),
        ("before", "b", "acbd"),
        ("after", "d", "abdc"),
        ("after", "a", "acbd"),
    ],
)
def test_a_uid_is_moved(place: str, anchor: str, expected: str) -> None:
    assert "".join(move_uid("abcd", "c", anchor, place)) == expected


@pytest.mark.parametrize(
    ("placed", "uids", "moved", "expected"),
    [
        ("", "cab", "c", "c"),
        ("", "acb", "c", "ac"),
        ("b", "cab", "c", "cab"),
        ("", "abc", "c", "abc"),
        ("xy", "ba", "b", "xyb"),
    ],
)
def test_only_those_that_need_it_have_a_place(placed: str, uids: str, moved: str, expected: str) -> None:
    """What comes later comes by age, behind them. Jobs of other priorities keep their places."""
    assert "".join(new_order(placed, uids, moved)) == expected


def test_few_jobs_have_a_place_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_move, "_MOST_PLACED", 2)
    assert new_order([], ["a", "b", "c"], "b") == ["a", "b"]
    with pytest.raises(BadRequest, match="3 jobs would have a place of their own in this queue; 2 may have one"):
        new_order([], ["a", "b", "c"], "c")


def gang(name: str, created: float, priority: int = 50, queue: str = "q") -> Gang:
    tasks = (Task(name, "ns", name, Shape(gpus=1), created=created),)
    owner = ("kubeflow.org/v1", "PyTorchJob", name, f"uid-{name}")
    return Gang("ns", name, name, queue, tasks, (PodSet("", 1),), priority=priority, created=created, owner=owner)


def snapshot(order: Sequence[str], *gangs: Gang, gpus: int = 1) -> Snapshot:
    queue = Queue("q", quota=(-1, -1, -1), order=tuple(f"uid-{name}" for name in order))
    return Snapshot(nodes=(Node("n", cpu=64_000, memory=2**36, gpus=gpus),), queues=(queue,), gangs=gangs, now=1000.0)


def test_the_planner_tries_them_in_this_order() -> None:
    gangs = (gang("a", 1), gang("b", 2), gang("c", 3), gang("high", 4, priority=75))
    for order, expected in (
        ((), "high a b c"),
        (("c", "b"), "high c b a"),
        (("gone", "b"), "high b a c"),
        (("c", "high"), "high c a b"),
    ):
        shot = snapshot(order, *gangs)
        assert " ".join(each.name for each in waiting_gangs(shot)) == expected
        (bind,) = [one for one in plan(shot).decisions if isinstance(one, PlannedBind)]
        assert bind.pod == "high"
    (bind,) = [one for one in plan(snapshot(("c",), *gangs[:3])).decisions if isinstance(one, PlannedBind)]
    assert bind.pod == "c", "the one GPU is for the first"


def test_what_runs_is_not_evicted_by_one_that_was_moved_before_it() -> None:
    runs = gang("a", 1)
    runs = replace(runs, tasks=tuple(replace(t, status=Status.RUNNING, node="n", devices=(0,)) for t in runs.tasks))
    decided = plan(snapshot(("b", "a"), runs, gang("b", 2))).decisions
    assert not [one for one in decided if isinstance(one, PlannedBind | PlannedEviction)]


def test_the_order_is_an_annotation_of_the_queue() -> None:
    note = {QUEUE_ORDER_ANNOTATION: " u1  u2 "}
    assert parse_queue({"metadata": {"name": "q", "annotations": note}}).order == ("u1", "u2")
    assert parse_queue({"metadata": {"name": "q"}}).order == ()


def test_a_job_is_moved_and_starts_first(served: Served) -> None:
    served.node("a", 1)
    submit = "runai distributed submit {} -i host --workers 1 --no-master -g 1 --priority {}"
    served.ok(submit.format("holds", "medium"))
    served.bound(1)
    for name, priority in (("a1", "low"), ("b2", "low"), ("c3", "low"), ("urgent", "medium")):
        served.ok(submit.format(name, priority))  # those of one second come by name
    served.until(lambda: [one["name"] for one in waiting(served)] == ["urgent", "a1", "b2", "c3"])
    said = served.ok("rowlock queue move c3 --before b2")
    assert said == "Project default starts those of its priority in this order: a1, c3, b2\n"
    assert [one["name"] for one in waiting(served)] == ["urgent", "a1", "c3", "b2"], "it is shown at once"
    served.ok("rowlock queue move c3 --first")
    served.ok("rowlock queue move a1 --last --json")
    served.until(lambda: [one["name"] for one in waiting(served)] == ["urgent", "c3", "b2", "a1"])
    for words, reason in (
        ("c3 --before urgent", "c3 has a lower priority than urgent, and the higher one always comes first"),
        ("c3 --after c3", "c3 cannot be moved before or after itself"),
        ("holds --first", "holds does not wait for nodes"),
        ("c3", "one of --first, --last, --before JOB, --after JOB"),
        ("c3 --first --last", "one of --first, --last"),
        ("nobody --first", "nobody"),
    ):
        code, _, said = served.run(f"rowlock queue move {words}")
        assert code and reason in said, said
    served.ok("rowlock delete urgent")
    served.ok("rowlock delete holds")
    served.until(
        lambda: not served.reap() and [one["name"] for one in waiting(served)] == ["b2", "a1"]
    )  # c3 has the GPU
    (queue,) = [one for one in served.all_of(kinds.QUEUE) if objects.name(one) == "default"]
    assert len(objects.annotations(queue)[QUEUE_ORDER_ANNOTATION].split()) == 3
