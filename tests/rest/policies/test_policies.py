"""Policies: written by scope, merged, and held against every submit with the field, the rule and whose policy it is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World, submission

POLICY = "/api/v2/policy/distributed"


def put(world: World, policy: Any, word: str = "distributed", **meta: Any) -> Any:
    body = {"meta": {"name": "limits", "scope": "tenant", **meta}, "policy": policy}
    answer = world.client.put(f"/api/v2/policy/{word}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def issues(answer: Any) -> dict[str, str]:
    assert answer.status_code == 400, answer.text
    assert "complianceIssues" in answer.json(), answer.text
    return {issue["field"]: issue["details"] for issue in answer.json()["complianceIssues"]}


@pytest.fixture
def lab(world: World) -> World:
    world.ensure_namespace("kube-public")
    world.project_id = world.project()["id"]
    return world


@pytest.mark.parametrize(
    ("rules", "asked", "field", "words"),
    [
        ({"numWorkers": {"min": 3}}, {}, "numWorkers", "value must be no less than 3"),
        ({"numWorkers": {"max": 1}}, {}, "numWorkers", "value must be no more than 1"),
        ({"numWorkers": {"step": 3}}, {}, "numWorkers", "by steps of 3"),
        ({"compute": {"cpuMemoryRequest": {"max": "50M"}}}, {}, "compute.cpuMemoryRequest", "no more than 50M"),
        ({"image": {"options": [{"value": "a"}, {"value": "b"}]}}, {}, "image", "value must be one of a, b"),
        ({"workingDir": {"required": True}}, {}, "workingDir", "value is required"),
        ({"nodeType": {"canEdit": False}}, {"nodeType": "x"}, "nodeType", "cannot be edited"),
        ({"environmentVariables": {"instances": {"canAdd": False}}},
         {"environmentVariables": [{"name": "A", "value": "1"}]}, "environmentVariables", "leave A out"),
    ],
)  # fmt: skip
def test_a_rule_that_is_broken_is_named(lab: World, rules: Any, asked: Any, field: str, words: str) -> None:
    put(lab, {"rules": {"worker": rules}})
    found = issues(lab.submit(projectId=lab.project_id, **asked))
    assert words in found[field] and 'policy "limits" of the tenant' in found[field]
    assert lab.client.delete(POLICY).status_code == 204
    assert lab.submit(projectId=lab.project_id, **asked).status_code == 202


@pytest.mark.both_engines
def test_defaults_are_written_out_and_the_nearest_scope_wins(lab: World) -> None:
    locked = {"instances": {"locked": ["A"]}}
    everybody = {
        "defaults": {
            "worker": {"backoffLimit": 1, "environmentVariables": {"instances": [{"name": "A", "value": "0"}]}}
        },
        "rules": {"worker": {"numWorkers": {"max": 1}, "environmentVariables": locked}},
    }
    put(lab, everybody)
    assert "numWorkers" in issues(lab.submit(projectId=lab.project_id))
    own = put(lab, {"rules": {"worker": {"numWorkers": {"max": 4}}}}, scope="project", projectId=int(lab.project_id))
    assert own["meta"]["projectName"] == "team-a" and own["effective"]["rules"]["worker"]["numWorkers"] == {"max": 4}
    assert own["effective"]["defaults"]["worker"]["backoffLimit"] == 1
    changed = {"environmentVariables": [{"name": "A", "value": "1"}]}
    assert issues(lab.submit(projectId=lab.project_id, **changed)) == {
        "environmentVariables": 'the item A cannot be changed (policy "limits" of the tenant)'
    }
    made = lab.submit(projectId=lab.project_id)
    assert made.status_code == 202 and made.json()["spec"]["backoffLimit"] == 1, made.text
    listed = lab.client.get("/api/v2/policy?workloadType=distributed").json()["policies"]
    assert sorted(one["meta"]["scope"] for one in listed) == ["project", "tenant"]


def test_a_master_of_its_own_is_no_way_around(lab: World) -> None:
    put(lab, {"rules": {"worker": {"compute": {"gpuDevicesRequest": {"max": 1}}}}})
    found = issues(lab.submit(projectId=lab.project_id, masterSpec={"compute": {"gpuDevicesRequest": 2}}))
    assert "no more than 1" in found["masterSpec.compute.gpuDevicesRequest"]


def test_trainings_and_workspaces_have_their_own(lab: World) -> None:
    put(lab, {"rules": {"image": {"options": [{"value": "good"}]}}}, word="training")
    body = {"name": "one", "projectId": lab.project_id, "spec": {"image": "bad"}}
    assert "value must be one of good" in issues(lab.client.post("/api/v1/workloads/trainings", json=body))["image"]
    assert lab.client.post("/api/v1/workloads/workspaces", json=body).status_code == 202
    as_runai_submit = submission(name="two", projectId=lab.project_id, image="bad", noWorkers=True)
    del as_runai_submit["spec"]["numWorkers"]
    assert "image" in issues(lab.client.post("/api/v1/workloads/distributed", json=as_runai_submit))


def test_an_imposed_data_source_is_mounted(lab: World) -> None:
    meta = {"name": "data", "scope": "tenant"}
    spec = {"path": "/srv", "mountPath": "/data"}
    made = lab.client.post("/api/v1/asset/datasource/host-path", json={"meta": meta, "spec": spec}).json()
    put(lab, {"imposedAssets": {"worker": [made["meta"]["id"]]}})
    answer = lab.submit(projectId=lab.project_id)
    assert answer.json()["spec"]["storage"]["hostPath"][0]["mountPath"] == "/data", answer.text


@pytest.mark.parametrize(
    ("policy", "field", "words"),
    [
        ({"rules": {"worker": {"numWrkers": {"max": 1}}}}, "policy.rules.worker.numWrkers", 'mean "numWorkers"?'),
        ({"rules": {"worker": {"numWorkers": {"mx": 1}}}}, "policy.rules.worker.numWorkers.mx", 'mean "max"?'),
        ({"rules": {"worker": {"image": {"max": 1}}}}, "policy.rules.worker.image.max", "is for numbers"),
        ({"rules": {"worker": {"numWorkers": 3}}}, "policy.rules.worker.numWorkers", "must be an object of rules"),
        ({"defaults": {"worker": {"numWorkers": "x"}}}, "policy.defaults.worker.numWorkers", "must be a whole number"),
        ({"rulez": {}}, "policy.rulez", 'mean "rules"?'),
    ],
)
def test_a_policy_that_means_nothing_is_refused(lab: World, policy: Any, field: str, words: str) -> None:
    body = {"meta": {"name": "x", "scope": "tenant"}, "policy": policy}
    assert words in issues(lab.client.put(POLICY, json=body))[field]


def test_what_is_only_validated_is_not_kept(lab: World) -> None:
    body = {"meta": {"name": "x", "scope": "tenant"}, "policy": {"rules": {"worker": {"numWorkers": {"max": 1}}}}}
    assert lab.client.put(f"{POLICY}?validateOnly=true", json=body).status_code == 200
    absent = lab.client.get(POLICY)
    assert absent.status_code == 404 and "the tenant has no distributed policy" in absent.json()["message"]
    assert lab.client.patch(POLICY, json=body).status_code == 200
    more = {**body, "policy": {"rules": {"worker": {"image": {"required": True}}}}}
    merged = lab.client.patch(POLICY, json=more).json()
    assert sorted(merged["policy"]["rules"]["worker"]) == ["image", "numWorkers"]
    assert lab.client.get("/api/v2/policy/distribted").status_code == 404
