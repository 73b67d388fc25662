"""What KAI leaves on a PodGroup, read as of now: it never takes a condition back."""

from __future__ import annotations

from rowlock.objects import Object
from rowlock.workloads.phase import pending_message

STARTED = "2026-03-07T10:00:00Z"


def kai_group(condition_time: str, started: str = STARTED) -> Object:
    """As recorded of KAI at 72de64f, shortened."""
    condition = {
        "type": "UnschedulableOnNodePool",
        "status": "True",
        "reason": "Unschedulable",
        "message": "PodSchedulingErrors: Resources were found for 1 pods",
        "reasons": [{"reason": "PodSchedulingErrors", "message": "Resources were found for 1 pods"}],
        "lastTransitionTime": condition_time,
    }
    annotations = {"kai.scheduler/last-start-timestamp": started} if started else {}
    return {"metadata": {"annotations": annotations}, "status": {"schedulingConditions": [condition]}}


def test_a_condition_from_before_the_last_start_is_about_an_earlier_wait() -> None:
    assert pending_message(kai_group("2026-03-07T09:59:00Z"), []) == ("", "")


def test_a_condition_since_the_last_start_counts() -> None:
    expected = ("Resources were found for 1 pods", "PodSchedulingErrors")
    assert pending_message(kai_group("2026-03-07T10:00:05Z"), []) == expected
    assert pending_message(kai_group("2026-03-07T09:00:00Z", started=""), []) == expected
