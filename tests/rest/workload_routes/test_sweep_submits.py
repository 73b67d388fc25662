"""What runs of a sweep cannot share is refused at the submit, before anything is made."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World

from rowlock import kinds, objects
from rowlock.rest.sweeps.views import command_of, cut_command


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


@pytest.mark.parametrize(
    ("command", "parameters", "sentence"),
    [
        (["echo", *["{a}"] * 5_000], {"a": ["x" * 999 + str(n) for n in range(2)]}, "the longest run comes to"),
        ("{a}" * 100_000, {"a": "1,2"}, "with its parameters the workload comes to"),
        ("true {a}", {"a": "1..1000", **{f"b{n}": ["x" * 1_000] for n in range(31)}}, "the parameters of all runs come to"),
        ("true {a}", {"a": [f"{n}{'x' * 990}" for n in range(999)]}, "the sweep comes to"),
    ],
)  # fmt: skip
def test_few_characters_that_stand_for_many_are_refused(
    world: World, command: Any, parameters: Any, sentence: str
) -> None:
    """One run of the first would have 10 MB, and 64 of them were made in one turn of the event loop."""
    spec = {"image": "i", "noWorkers": True, "distributedFramework": "PyTorch", "command": command}
    body = {
        "name": "tune",
        "parameters": parameters,
        "maxParallel": 64,
        "workload": {"projectId": world.project()["id"], "spec": spec},
    }
    answer = world.client.post("/api/v1/sweeps", json=body)
    assert answer.status_code == 400 and sentence in answer.text, (answer.status_code, answer.text[:500])
    assert not [obj for obj in world.store.view.all(kinds.CONFIG_MAP) if objects.name(obj).startswith("sweep-")]


def test_a_false_sweep_with_the_id_of_another_hides_nothing(world: World) -> None:
    """Anybody who may write ConfigMaps may write one with any id; names before the true one's come first in lists."""
    project = world.project()
    spec = {"image": "i", "noWorkers": True, "distributedFramework": "PyTorch"}
    body = {"name": "tune", "parameters": {"lr": "1,2"}, "workload": {"projectId": project["id"], "spec": spec}}
    made = world.client.post("/api/v1/sweeps", json=body).json()
    true = next(obj for obj in world.store.view.all(kinds.CONFIG_MAP) if objects.name(obj) == "sweep-tune")
    false = {
        "metadata": {
            "name": "sweep-a",
            "namespace": objects.namespace(true),
            "labels": {"rowlock.dev/sweep": "a", "rowlock.dev/workload-id": made["id"]},
        },
        "data": true["data"],
    }
    world.create(kinds.CONFIG_MAP, false)
    shown = world.client.get(f"/api/v1/sweeps/{made['id']}").json()
    assert (shown["name"], shown["phase"]) == ("tune", "Running")
    assert world.client.delete(f"/api/v1/sweeps/{made['id']}").status_code == 202
    left = {objects.name(obj) for obj in world.store.view.all(kinds.CONFIG_MAP)}
    assert "sweep-a" in left and "sweep-tune" not in left


def test_a_list_of_runs_has_the_beginning_of_their_commands() -> None:
    """A thousand runs of a megabyte each were one answer."""
    pod = {"containers": [{"name": "pytorch", "command": ["python", "train.py"], "args": ["x" * 3_000, "y" * 500_000]}]}
    job = {"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "metadata": {"name": "tune-0"}}
    job["spec"] = {"pytorchReplicaSpecs": {"Master": {"template": {"spec": pod}}}}
    assert len(command_of(job)) == 4
    shown = cut_command(command_of(job))
    assert shown[:2] == ["python", "train.py"] and len(shown) == 3 and len(" ".join(shown)) <= 2_001
    assert shown[2].endswith("x…") and cut_command(["a", "b"]) == ["a", "b"]
