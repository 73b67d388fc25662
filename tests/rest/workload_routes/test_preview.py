"""What a submit would create, as JSON and as YAML for kubectl."""

from __future__ import annotations

import yaml
from tests.rest.conftest import World, submission


def test_a_preview_is_the_same_in_yaml(world: World) -> None:
    world.project()
    body = submission()
    path = "/api/v1/workloads/distributed?dryRun=true"
    plain = world.client.post(path, json=body)
    written = world.client.post(path, json=body, headers={"accept": "application/yaml"})
    assert (plain.status_code, written.status_code) == (200, 200), (plain.text, written.text)
    assert written.headers["content-type"].startswith("application/yaml")
    found = list(yaml.safe_load_all(written.text))
    assert [one["kind"] for one in found] == [one["kind"] for one in plain.json()["objects"]]
    replicas, others = (one["spec"]["pytorchReplicaSpecs"] for one in (found[-1], plain.json()["objects"][-1]))
    assert replicas["Worker"]["replicas"] == others["Worker"]["replicas"] == 2
    assert list(replicas) == list(others), "in the order that people read"
    assert "&id" not in written.text
