"""The mark of a pod that is evicted through the API."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.system.pod_garbage_collector import mark_evicted


def pod(phase: str, **metadata: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": "a", "uid": "u", **metadata}, "status": {"phase": phase, "conditions": [ready]}}


def test_a_pod_at_work_is_marked_beside_its_other_conditions() -> None:
    write = mark_evicted(pod("Running"), 0.0)
    assert write is not None
    assert [(c["type"], c["status"], c.get("reason")) for c in write.patch["status"]["conditions"]] == [
        ("Ready", "True", None),
        ("DisruptionTarget", "True", "EvictionByEvictionAPI"),
    ]


@pytest.mark.parametrize(
    "other", [pod("Pending"), pod("Succeeded"), pod("Failed"), pod("Running", deletionTimestamp="2026-11-29T00:00:00Z")]
)
def test_others_are_deleted_without(other: dict[str, Any]) -> None:
    assert mark_evicted(other, 0.0) is None
