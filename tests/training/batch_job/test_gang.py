"""Which Jobs are gangs, and what their PodGroup says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.training.batch_job.test_reconcile import batch_job, made
from tests.training.batch_job.test_reconcile import look as look_at

from rowlock.training.batch_job.gang import runs_together
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
