"""`--max-time`: what counts, and how a job is ended."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.workloads.phase import phase_and_message
from rowlock.workloads.run_options.time_limit import (
    ENDED_ANNOTATION,
    MAX_TIME_ANNOTATION,
    end_patch,
    max_time_of,
    seconds_run,
    time_text,
)


def job(value: str, **policy: Any) -> dict[str, Any]:
    meta = {"name": "train", "namespace": "a", "uid": "u-1", "annotations": {MAX_TIME_ANNOTATION: value}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": {"runPolicy": policy}}


@pytest.mark.parametrize(
    ("text", "limit"), [("7200", 7200.0), ("0", None), ("", None), ("-1", None), ("1e9", None), ("9" * 30, None)]
)
def test_the_annotation_is_a_whole_number_or_nothing(text: str, limit: float | None) -> None:
    assert max_time_of(job(text)) == limit


def test_what_the_patch_would_not_end_has_no_limit() -> None:
    """`rowlock why` would say that it was stopped, and it would run on."""
    assert max_time_of({**job("7200"), "apiVersion": "batch/v1", "kind": "Job"}) is None


def test_only_running_counts() -> None:
    phases = [
        (0.0, "Creating", ""), (5.0, "Pending", ""), (100.0, "Initializing", ""), (110.0, "Running", ""), (150.0, "Degraded", ""),
        (160.0, "Pending", ""), (1000.0, "Running", ""),
    ]  # fmt: skip
    assert seconds_run(phases, 1030.0) == 50 + 30
    assert seconds_run(phases[:3], 9999.0) == 0
    assert seconds_run([], 1.0) == 0
    assert seconds_run(phases[:4], 100.0) == 0, "a clock that was set back"


def test_the_patch_ends_the_job_its_pods_and_says_why() -> None:
    sentence = "It was stopped: it reached its --max-time of 2 h."
    meta = {"uid": "u-1", "annotations": {ENDED_ANNOTATION: sentence}}
    spec = {"runPolicy": {"activeDeadlineSeconds": 1, "cleanPodPolicy": "Running"}}
    assert end_patch(job("7200"), 7200.0) == {"metadata": meta, "spec": spec}
    assert end_patch(job("7200", cleanPodPolicy="All"), 7200.0)["spec"] == {"runPolicy": {"activeDeadlineSeconds": 1}}
    ended = job("7200")
    ended["metadata"]["annotations"][ENDED_ANNOTATION] = sentence
    ended["status"] = {
        "conditions": [{"type": "Failed", "status": "True", "message": "has failed because it was active longer"}]
    }
    assert phase_and_message(ended, [], None) == ("Failed", sentence)


@pytest.mark.parametrize(
    ("seconds", "text"), [(7200, "2 h"), (5400, "1.5 h"), (2700, "45 min"), (90, "1.5 min"), (61, "61 s"), (8, "8 s")]
)
def test_a_limit_is_said_as_it_was_typed(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
