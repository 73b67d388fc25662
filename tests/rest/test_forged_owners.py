"""What anybody may write into objects of his own namespace, an owner's uid or a workload's id, takes nothing from others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rest.conftest import World

from rowlock import kinds
from rowlock.objects import Object
from rowlock.rest.cluster_view.workload_ids import WorkloadIds
from rowlock.workloads.objects import WORKLOAD_ID


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


@pytest.mark.parametrize("is_first", [True, False])
def test_who_may_see_a_job_finds_it_whoever_has_written_its_id(is_first: bool) -> None:
    """After a restart the jobs of namespaces that come earlier are seen first, and the other one's could not be ended over REST."""
    ids = WorkloadIds()
    own, forged = [job(space, "id-1") for space in ("runai-own", "runai-forged")]
    for one in (forged, own) if is_first else (own, forged):
        ids.note(None, one)
    assert set(ids.uids("id-1")) == {"runai-own-uid", "runai-forged-uid"}
    ids.note(None, {**forged, "metadata": {**forged["metadata"], "uid": "again"}})
    assert len(ids.uids("id-1")) == 2, "one of a namespace"
    moved = job("runai-forged", "id-2")
    ids.note(forged, moved)
    assert ids.uids("id-1") == ["runai-own-uid"] and ids.uids("id-2") == ["runai-forged-uid"]
    ids.forget(moved)
    assert ids.uids("id-2") == []


def job(namespace: str, identity: str) -> Object:
    return {"metadata": {"namespace": namespace, "uid": f"{namespace}-uid", "labels": {WORKLOAD_ID: identity}}}
