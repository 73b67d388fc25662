"""Which Jobs are gangs, and what their PodGroup says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.training.batch_job.test_reconcile import batch_job, made, pod
from tests.training.batch_job.test_reconcile import look as look_at

from rowlock.api import Change, Create, Update
from rowlock.controllers.view.state import State
from rowlock.kinds import POD_GROUP
from rowlock.objects import Object
from rowlock.training.batch_job.gang import members, runs_together, sync_gang
from rowlock.training.batch_job.model import parse_batch_job


@pytest.mark.parametrize(
    ("spec", "is_gang"),
    [
        ({"completionMode": "Indexed", "completions": 3, "parallelism": 3}, True),
        ({"completionMode": "Indexed", "completions": 3, "parallelism": 2}, False),
        ({"completionMode": "Indexed", "completions": 1, "parallelism": 1}, False),
        ({"completions": 3, "parallelism": 3}, False),
    ],
)
def test_an_indexed_job_that_runs_all_at_once_is_a_gang(spec: dict[str, Any], is_gang: bool) -> None:
    assert runs_together(parse_batch_job(batch_job(**spec))) is is_gang


def test_a_job_that_is_a_part_of_something_else_declares_no_gang_of_its_own() -> None:
    job = batch_job(completionMode="Indexed", completions=3, parallelism=3)
    job["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "set", "uid": "u-set", "controller": True}]
    assert not runs_together(parse_batch_job(job))


def test_pods_bring_the_labels_of_their_job_that_speak_to_the_scheduler() -> None:
    job = batch_job()
    job["metadata"]["labels"] = {"kai.scheduler/queue": "team", "priorityClassName": "build", "app": "x"}
    (pod,) = made(look_at(job))
    labels = pod["metadata"]["labels"]
    assert (labels["kai.scheduler/queue"], labels["priorityClassName"], "app" in labels) == ("team", "build", False)


def gang_of(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    job = batch_job(completionMode="Indexed", completions=2, parallelism=2, **spec)
    job["metadata"] |= {"labels": labels or {}, "annotations": annotations or {}}
    return job


def test_a_podgroup_follows_its_job_also_in_what_the_job_no_longer_says() -> None:
    labels = {"kai.scheduler/preemptibility": "non-preemptible"}
    notes = {"kai.scheduler/topology": "rack", "kai.scheduler/topology-required-placement": "rack-label"}
    view = State()
    (create,) = sync_gang(view, parse_batch_job(gang_of(labels, notes, activeDeadlineSeconds=60)), [])
    assert isinstance(create, Create)
    group = create.object
    assert group["spec"]["preemptibility"] == "non-preemptible" and group["spec"]["topologyConstraint"]
    assert group["metadata"]["annotations"]["rowlock.dev/max-runtime"] == "60s"
    group["spec"]["markUnschedulable"] = True  # a field of somebody else
    view.apply(Change("Added", 1, POD_GROUP, group))
    later = {"kai.scheduler/preemption-delay": "5m"}
    (update,) = sync_gang(view, parse_batch_job(gang_of({"kai.scheduler/queue": "team"}, later)), [])
    assert isinstance(update, Update)
    spec, marks = update.object["spec"], update.object["metadata"]["annotations"]
    assert "preemptibility" not in spec and "topologyConstraint" not in spec
    assert (spec["queue"], spec["markUnschedulable"]) == ("team", True)
    assert "rowlock.dev/max-runtime" not in marks and marks["kai.scheduler/preemption-delay"] == "5m"
    view.apply(Change("Modified", 2, POD_GROUP, update.object, group))
    assert sync_gang(view, parse_batch_job(gang_of({"kai.scheduler/queue": "team"}, later)), []) == []


INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
QUEUE = {"parallelism": 3, "completions": None}
DONE, RUNS, FAILED = (pod(phase, phase) for phase in ("Succeeded", "Running", "Failed"))


@pytest.mark.parametrize(
    ("spec", "status", "pods", "count"),
    [
        pytest.param(INDEXED, {}, [], 3, id="new"),
        pytest.param(INDEXED, {}, [FAILED, RUNS], 3, id="a failed pod is replaced"),
        pytest.param(INDEXED, {"completedIndexes": "0"}, [DONE, RUNS], 3, id="a succeeded pod is there"),
        pytest.param(INDEXED, {"completedIndexes": "0"}, [RUNS], 2, id="and has been deleted"),
        pytest.param(INDEXED, {"completedIndexes": "0-2"}, [], 0, id="all deleted"),
        pytest.param(INDEXED, {"failedIndexes": "0"}, [FAILED], 2, id="an index has failed for good"),
        pytest.param(INDEXED, {"completedIndexes": "1", "failedIndexes": "0"}, [], 1, id="both"),
        pytest.param({**INDEXED, "completions": 9}, {"completedIndexes": "0-4"}, [DONE] * 5, 3, id="as many as run"),
        pytest.param({**INDEXED, "completions": 9}, {"completedIndexes": "0-7"}, [], 1, id="the last one"),
        pytest.param({"parallelism": 3, "completions": 2}, {}, [], 2, id="no more than are wanted"),
        pytest.param({"parallelism": 3, "completions": 3}, {"succeeded": 2}, [DONE], 2, id="counted by number"),
        pytest.param(QUEUE, {}, [], 3, id="a work queue"),
        pytest.param(QUEUE, {"succeeded": 1}, [DONE, RUNS, FAILED], 2, id="gets no pods after the first success"),
        pytest.param(
            INDEXED,
            {"completedIndexes": "0", "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]},
            [DONE],
            1,
            id="enough have succeeded",
        ),
    ],
)
def test_a_gang_counts_pods_that_may_still_come_and_succeeded_ones_that_are_there(
    spec: dict[str, Any], status: Object, pods: list[Object], count: int
) -> None:
    assert members(parse_batch_job(batch_job(status, **spec)), pods) == count


def test_a_podgroup_does_not_wait_for_a_succeeded_pod_that_was_deleted() -> None:
    view, job = State(), gang_of()
    (create,) = sync_gang(view, parse_batch_job(job), [])
    assert isinstance(create, Create) and create.object["spec"]["minMember"] == 2
    view.apply(Change("Added", 1, POD_GROUP, create.object))
    done = parse_batch_job({**job, "status": {"completedIndexes": "0"}})
    assert sync_gang(view, done, [DONE, RUNS]) == []
    (update,) = sync_gang(view, done, [])
    assert isinstance(update, Update) and update.object["spec"]["minMember"] == 1
