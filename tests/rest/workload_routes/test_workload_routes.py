"""Trainings and workspaces, the pods of all workloads, batches, figures of what workloads ask for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World, node

from rowlock import kinds, objects

W = "/api/v1/workloads"


def standard(world: World, word: str, name: str = "one", **spec: Any) -> Any:
    body = {"name": name, "projectId": "team-a", "clusterId": world.cluster, "spec": {"image": "i", **spec}}
    return world.client.post(f"{W}/{word}", json=body)


@pytest.mark.parametrize(
    ("word", "kind", "category"), [("trainings", "Training", "Train"), ("workspaces", "Workspace", "Build")]
)
@pytest.mark.both_engines
def test_a_workload_of_one_pod(world: World, word: str, kind: str, category: str) -> None:
    world.project()
    made = standard(world, word, command="python train.py")
    assert made.status_code == 202, made.text
    body = made.json()
    assert body["spec"] == {"image": "i", "command": "python train.py"} and "masterSpec" not in body
    one = f"{W}/{word}/{body['workloadId']}"
    phase = {"actualPhase": "which goes on by itself"}
    assert world.client.get(one).json() | phase == body | phase
    (listed,) = world.client.get(W, params={"filterBy": f"type=={kind}"}).json()["workloads"]
    assert (listed["category"], listed["requestedPods"]["number"]) == (category, 1)
    assert (listed["priorityClassName"], listed["preemptible"]) == (
        ("high", False) if category == "Build" else ("low", True)
    )
    assert world.client.post(f"{one}/suspend").status_code == 202
    assert world.client.get(one).json()["desiredPhase"] == "Stopped"
    shown = f"{W}/{body['workloadId']}"
    world.until(lambda: world.client.get(shown).json()["totalPendingTimeSeconds"] is None)  # it does not wait
    assert world.client.post(f"{one}/resume").status_code == 202
    other = world.client.delete(f"{W}/{'workspaces' if word == 'trainings' else 'trainings'}/{body['workloadId']}")
    assert other.status_code == 404 and f"/api/v1/workloads/{word}/{body['workloadId']}" in other.json()["message"]
    assert world.client.delete(one).status_code == 202
    assert world.client.get(one).status_code == 404


@pytest.mark.both_engines
def test_a_readiness_probe_is_the_containers(world: World) -> None:
    world.project()
    request = {"path": "/up", "port": 8080, "scheme": "HTTP"}
    readiness = {"handler": {"httpGet": request}, "periodSeconds": 5, "initialDelaySeconds": 0, "failureThreshold": 3}
    made = standard(world, "workspaces", probes={"readiness": readiness})
    assert made.status_code == 202 and made.json()["spec"]["probes"] == {"readiness": readiness}, made.text
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "one")
    (container,) = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template.spec.containers")
    assert container["readinessProbe"] == {
        "httpGet": request, "periodSeconds": 5, "initialDelaySeconds": 0, "failureThreshold": 3,
    }  # fmt: skip
    for wrong, words in (
        ({"liveness": {}}, "there is no such field"),
        ({"readiness": {"periodSeconds": 1}}, "spec.probes.readiness.handler.httpGet.port"),
        ({"readiness": {"handler": {"httpGet": {"port": 80}}, "periodSeconds": 0}}, "must be no less than 1"),
    ):
        answer = standard(world, "trainings", "two", probes=wrong)
        assert answer.status_code == 400 and words in answer.json()["message"], answer.text


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"numWorkers": 2}, "spec.numWorkers", "there is no such field"),
        ({"comand": "x"}, "spec.comand", 'Did you mean "command"?'),
        ({"completions": 3}, "spec.completions", "runs one pod once"),
        ({"category": "Build"}, "spec.category", "must be one of Train"),
        ({"compute": {"gpuDevicesRequest": 9}}, "spec.compute.gpuDevicesRequest", "the largest node has 1"),
    ],
)
def test_what_one_pod_cannot_have_is_refused(world: World, spec: dict[str, Any], field: str, words: str) -> None:
    world.project()
    answer = standard(world, "trainings", **spec)
    issues = {issue["field"]: issue["details"] for issue in answer.json()["complianceIssues"]}
    assert answer.status_code == 400 and words in issues[field], answer.text
    assert standard(world, "trainings", completions=1, parallelism=1).status_code == 202, "what clients send by default"


def _pod(world: World, job: str, name: str, **status: Any) -> None:
    owner = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", job)
    assert owner is not None
    meta = {
        "name": name,
        "namespace": "runai-team-a",
        "ownerReferences": [{**objects.owner_reference(owner), "controller": True}],
    }
    made = objects.dig(owner, "spec.pytorchReplicaSpecs.Master.template")
    spec = {**made["spec"], "nodeName": "node-1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**made["metadata"], **meta}, "spec": spec}
    world.create(kinds.POD, pod)
    world.patch(kinds.POD, "runai-team-a", name, {"status": status}, "status")


def test_the_pods_of_all_workloads(world: World) -> None:
    world.project()
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}}
    for job in ("a", "b"):
        assert world.submit(name=job).status_code == 202
    _pod(world, "a", "a-master-0", phase="Running")
    _pod(world, "b", "b-master-0", phase="Succeeded", containerStatuses=[{"name": "pytorch", "state": ended}])
    listed = {p["name"]: p for p in world.client.get(f"{W}/pods").json()["pods"]}
    assert {p["workloadName"] for p in listed.values()} == {"a", "b"}
    assert listed["a-master-0"]["requestedResources"] == {
        "gpuRequestType": "portion", "gpu": {"request": 0.1, "limit": 0.1}, "gpuMemory": {"request": None, "limit": None},
        "cpu": {"request": 0.1, "limit": None}, "cpuMemory": {"request": "100M", "limit": None}, "extendedResources": [],
    }  # fmt: skip
    assert listed["a-master-0"]["allocatedResources"]["cpu"] == 0.1
    assert listed["b-master-0"]["allocatedResources"]["gpu"] == 0, "what has ended holds nothing"
    for query, names in (
        ("completed=true", ["b-master-0"]),
        ("completed=false", ["a-master-0"]),
        ("search=B-M", ["b-master-0"]),
    ):
        assert [p["name"] for p in world.client.get(f"{W}/pods?{query}").json()["pods"]] == names
    (one,) = world.client.get(
        f"{W}/pods", params={"filterBy": f"workloadId=={listed['a-master-0']['workloadId']}"}
    ).json()["pods"]
    assert one == listed["a-master-0"]
    assert world.client.get(f"{W}/pods/count").json() == {"count": 2}
    page = world.client.get(f"{W}/pods?limit=1&sortBy=createdAt").json()
    assert len(page["pods"]) == 1 and page["next"] == 1
    workload = listed["a-master-0"]["workloadId"]
    for path, nothing in (("pods", []), (f"{workload}/pods", []), ("pods/count", 0), ("count", 0), ("", [])):
        answer = world.client.get(f"{W}/{path}?deleted=true").json()
        assert list(answer.values()) == [nothing], f"{path}: what is gone is not kept"
        assert world.client.get(f"{W}/{path}?deleted=maybe").status_code == 400
    for query in ("completed=yes", "verbosity=loud", "filterBy=node==x"):
        assert world.client.get(f"{W}/pods?{query}").status_code == 400, query


@pytest.mark.both_engines
def test_a_batch_says_of_each_what_became_of_it(world: World) -> None:
    world.project()
    one = world.submit(name="one").json()["workloadId"]
    other = standard(world, "trainings", "other").json()["workloadId"]
    for action, phase in (("suspend", "Stopped"), ("resume", "Running")):
        answer = world.client.post(f"{W}/batch", json={"ids": [one, other, "nothing"], "action": action}).json()
        assert answer["succeeded"] == [one, other]
        assert [(f["id"], f["code"]) for f in answer["failed"]] == [("nothing", 404)]
        assert world.client.get(f"{W}/distributed/{one}").json()["desiredPhase"] == phase
    assert world.client.post(f"{W}/batch", json={"ids": [one, other], "action": "delete"}).json()["failed"] == []
    assert world.client.get(f"{W}/count").json() == {"count": 0}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"ids": ["x"], "action": "stop"}, "must be one of delete, suspend, resume"),
        ({"ids": [], "action": "delete"}, "must be a list of the ids"),
        ({"ids": ["x"] * 101, "action": "delete"}, "the limit is 100"),
        ({"id": ["x"], "action": "delete"}, 'Did you mean "ids"?'),
        (["x"], "must be one of"),
    ],
)
def test_a_batch_that_is_none(world: World, body: Any, words: str) -> None:
    answer = world.client.post(f"{W}/batch", json=body)
    assert answer.status_code == 400 and words in answer.json()["message"]


@pytest.mark.both_engines
def test_a_workload_asks_for_the_sum_of_its_pods(world: World) -> None:
    world.project()
    world.create(kinds.NODE, node("big", 8))
    compute = {"gpuDevicesRequest": 2, "cpuCoreRequest": 1.5, "cpuMemoryRequest": "1Gi", "cpuMemoryLimit": "2Gi"}
    assert world.submit(compute=compute).status_code == 202
    (one,) = world.client.get(W).json()["workloads"]
    total, pod = one["workloadRequestedResources"], one["podsRequestedResources"]
    assert (total["gpu"]["request"], total["cpu"]["request"], total["cpuMemory"]) == (
        6,
        4.5,
        {"request": "3Gi", "limit": "6Gi"},
    )
    assert (pod["gpu"]["request"], pod["cpu"]["request"], pod["gpuRequestType"]) == (2, 1.5, None)


def test_dictionaries(world: World) -> None:
    assert [c["name"] for c in world.client.get("/api/v1/workload-categories").json()["categories"]] == [
        "Build",
        "Train",
    ]
    first = world.client.get("/api/v1/workload-types").json()["types"][0]
    assert (first["name"], first["group"], first["categoryId"]) == ("PyTorchJob", "kubeflow.org", "Train")
