"""What anybody may write into objects of his own namespace, an owner's uid or a workload's id, takes nothing from others."""

from __future__ import annotations

from typing import Any

from tests.rest.conftest import World

from rowlock import kinds


def jobs_own(world: World, identity: str) -> tuple[str, list[str]]:
    listed = world.client.get("/api/v1/workloads").json()["workloads"]
    pods = world.client.get(f"/api/v1/workloads/{identity}/pods").json()["pods"]
    return next(w["phase"] for w in listed if w["id"] == identity), [pod["name"] for pod in pods]


def test_a_pod_of_another_namespace_is_no_pod_of_the_job(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    before = jobs_own(world, identity)
    job = next(iter(world.store.view.all(kinds.PYTORCHJOB)))
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "controller": True}
    owner |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    world.create(kinds.NAMESPACE, {"metadata": {"name": "apart"}})
    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "b"}]}
    world.create(kinds.POD, {"metadata": {"name": "p", "namespace": "apart", "ownerReferences": [owner]}, "spec": spec})
    assert jobs_own(world, identity) == before and "p" not in before[1]


def test_a_label_that_says_the_id_of_another_workload_takes_nothing_from_it(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    job = next(iter(world.store.view.all(kinds.PYTORCHJOB)))
    world.create(kinds.NAMESPACE, {"metadata": {"name": "apart"}})
    metadata = {"name": "forged", "namespace": "apart", "labels": job["metadata"]["labels"]}
    world.create(kinds.PYTORCHJOB, {"metadata": metadata, "spec": job["spec"]})
    assert world.client.get(f"/api/v1/workloads/{identity}").json()["name"] == job["metadata"]["name"]
