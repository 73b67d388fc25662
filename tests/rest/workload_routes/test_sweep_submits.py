"""What runs of a sweep cannot share is refused at the submit, before anything is made."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World

from rowlock import kinds, objects


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startAfter": "2099-01-01T00:00:00Z"}, "runs of a sweep do not wait for jobs or times yet"),
        ({"after": [{"job": "prep"}]}, "runs of a sweep do not wait for jobs or times yet"),
        ({"notify": {"url": "https://example.com/hook"}}, "runs of a sweep send no notifications yet"),
        ({"name": "mine"}, "each run has the name of the sweep and its number"),
    ],
)
def test_what_runs_cannot_share_is_refused(world: World, options: dict[str, Any], sentence: str) -> None:
    project = world.project()
    spec = {"image": "i", "noWorkers": True, "distributedFramework": "PyTorch"}
    body: dict[str, Any] = {
        "name": "tune",
        "parameters": {"lr": "1,2"},
        "workload": {"projectId": project["id"], "spec": spec},
    }
    answer = world.client.post("/api/v1/sweeps", json=body)
    assert answer.status_code == 202, answer.text
    answer = world.client.post(
        "/api/v1/sweeps", json={**body, "name": "other", "workload": {**body["workload"], **options}}
    )
    assert answer.status_code == 400 and sentence in answer.text, answer.text
    names = {objects.name(obj) for obj in world.store.view.all(kinds.CONFIG_MAP)}
    assert "sweep-tune" in names and "sweep-other" not in names
