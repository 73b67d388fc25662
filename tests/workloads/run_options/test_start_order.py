"""`--after` and `--start-after`: what is written on a waiting job, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.cli.grammar import CommandError
from rowlock.cli.run.start_order import parse_start
from rowlock.errors import BadRequest
from rowlock.workloads.phase import phase_and_message
from rowlock.workloads.run_options.start_order import (
    AFTER_ANNOTATION,
    BLOCKED_ANNOTATION,
    START_AFTER_ANNOTATION,
    Awaited,
    awaited_jobs,
    order_annotations,
    order_sentence,
    start_patch,
    start_time,
)
from rowlock.workloads.submission import parse_submission


def waiting(**notes: str) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "a", "uid": "u-1", "annotations": notes}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": meta,
        "spec": {"runPolicy": {"suspend": True}},
    }


def test_what_is_written_is_read_again() -> None:
    after = [Awaited("prep", "u-2"), Awaited("check", "u-3", must_succeed=True)]
    notes = order_annotations(after, "2026-12-24T22:00:00Z")
    job = waiting(**notes)
    assert notes[AFTER_ANNOTATION] == "prep/u-2 check/u-3/succeeded"
    assert awaited_jobs(job) == after
    assert start_time(job) == 1_798_149_600.0
    sentence = "It waits for prep to end and for check to succeed and until 2026-12-24T22:00:00Z"
    assert order_sentence(job) == f"{sentence}; `rowlock resume train` starts it now."
    job["metadata"]["annotations"][BLOCKED_ANNOTATION] = "check"
    blocked = f"{sentence}, and check has not succeeded: `rowlock resume train` starts it anyway."
    assert phase_and_message(job, [], None) == ("Pending", blocked)
    assert start_patch(job)["spec"] == {"runPolicy": {"suspend": False}}
    assert set(start_patch(job)["metadata"]["annotations"]) == {
        AFTER_ANNOTATION,
        START_AFTER_ANNOTATION,
        BLOCKED_ANNOTATION,
    }


def test_what_others_wrote_harms_nothing() -> None:
    assert order_sentence(waiting()) == ""
    assert awaited_jobs(waiting(**{AFTER_ANNOTATION: "x / a/b/c/d prep/u-2"})) == [
        Awaited("", ""),
        Awaited("prep", "u-2"),
    ]
    assert start_time(waiting(**{START_AFTER_ANNOTATION: "soon"})) == 0.0
    long = waiting(**{AFTER_ANNOTATION: "prep/u-2 " * 30_000, START_AFTER_ANNOTATION: "9" * 250_000})
    assert awaited_jobs(long) == [Awaited("prep", "u-2")] * 20, "read at the end of each job"
    assert len(order_sentence(long)) < 1_000
    batch = {**waiting(**{AFTER_ANNOTATION: "prep/u-2"}), "apiVersion": "batch/v1", "kind": "Job"}
    assert order_sentence(batch) == "", "nobody would start it"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"after": "prep"}, "after: must be a list of objects"),
        ({"after": [{"name": "prep"}]}, "there is no such field"),
        ({"after": [{"job": "prep", "succeeded": "yes"}]}, "must be true or false"),
        ({"after": [{"job": "prep"}] * 21}, "names 21 jobs; 20 are allowed"),
        ({"startAfter": "22:00"}, "must be a time with its zone"),
        ({"startAfter": "2026-12-24T22:00:00"}, "must be a time with its zone"),
    ],
)
def test_a_mistake_is_refused_with_a_sentence(fields: dict[str, Any], words: str) -> None:
    spec = {"image": "i", "distributedFramework": "PyTorch", "noWorkers": True}
    with pytest.raises(BadRequest, match=words):
        parse_submission({"name": "train", "projectId": "a", "spec": spec, **fields})


def test_times_are_read_as_people_write_them() -> None:
    now = datetime(2026, 11, 30, 21, 30, tzinfo=UTC)
    assert parse_start("22:00", now) == "2026-11-30T22:00:00Z"
    assert parse_start("9:05", now) == "2026-12-01T09:05:00Z"
    assert parse_start("1h30m", now) == "2026-11-30T23:00:00Z"
    assert parse_start("2026-12-24T22:00", now) == "2026-12-24T22:00:00Z"
    assert parse_start("2026-12-24T22:00+02:00", now) == "2026-12-24T20:00:00Z"
    for text in ("soon", "25:00", "tomorrow", "2026-13-01"):
        with pytest.raises(CommandError, match="--start-after takes a time"):
            parse_start(text, now)
