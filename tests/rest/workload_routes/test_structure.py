"""The objects of a workload as a tree: each after its owner, with a status."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.rest.conftest import World

from rowlock.rest.workload_routes.structure import entries
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload

CONTAINER = {"name": "pytorch", "image": "i"}
JOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "one", "namespace": "runai-team-a", "uid": "job"},
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}}},
}


def pod(name: str, state: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "namespace": "runai-team-a"},
        "spec": {"containers": [CONTAINER], **spec},
        "status": {"phase": "Running", "containerStatuses": [{"name": "pytorch", "state": state}]},
    }


def test_each_object_stands_below_its_owner() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "configMap": {"name": "settings"}},
        {"name": "c", "emptyDir": {}},
    ]
    first = pod("one-master-0", {"running": {}}, volumes=volumes, initContainers=[{"name": "clone", "image": "git"}])
    second = pod("one-worker-0", {"terminated": {"exitCode": 3}}, volumes=volumes[:1])
    third = pod("one-worker-1", {"waiting": {"reason": "ImagePullBackOff"}})
    group = {"kind": "PodGroup", "metadata": {"name": "pg", "uid": "pg"}, "status": {"phase": "Running"}}
    project = Project("1", "team-a", "runai-team-a", "team-a", "default", "", Decimal(1), Decimal(-1))
    workload = Workload(JOB, [first, second, third], group, project, "cluster")
    found = list(entries(workload))
    assert [(one["kind"], one["name"], one["owner"]) for one in found] == [
        ("PyTorchJob", "one", None),
        ("PodGroup", "pg", "job"),
        ("Pod", "one-master-0", "job"),
        ("Init container", "clone", "one-master-0"),
        ("Container", "pytorch", "one-master-0"),
        ("Pod", "one-worker-0", "job"),
        ("Container", "pytorch", "one-worker-0"),
        ("Pod", "one-worker-1", "job"),
        ("Container", "pytorch", "one-worker-1"),
        ("PersistentVolumeClaim", "data", "job"),
        ("ConfigMap", "settings", "job"),
    ]
    states = [one["status"] for one in found if "ontainer" in one["kind"]]
    assert states == ["", "Running", "exit code 3", "ImagePullBackOff"]
    assert len({one["id"] for one in found}) == len(found)


def test_it_is_served_for_workloads_that_are_there(world: World) -> None:
    world.project()
    made = world.submit().json()
    path = f"/api/v1/workloads/{made['workloadId']}/structure"
    (job,) = world.client.get(path).json()["objects"]
    assert (job["kind"], job["name"], job["owner"]) == ("PyTorchJob", made["name"], None)
    assert world.client.get("/api/v1/workloads/nowhere/structure").status_code == 404
    assert world.client.get(f"{path}?deep=true").status_code == 400


def owned(kind: str, name: str, owner: str, **more: Any) -> dict[str, Any]:
    owners = [{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": owner, "controller": True}]
    return {"kind": kind, "metadata": {"name": name, "uid": name, "ownerReferences": owners}, **more}


def test_the_set_and_the_jobs_of_a_trainjob_stand_between_it_and_its_pods() -> None:
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t", "uid": "t"}}
    complete = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    data = owned("Job", "data", "set", apiVersion="batch/v1", **complete)
    node = owned("Job", "node", "set", apiVersion="batch/v1", spec={"parallelism": 1, "completions": 1})
    parts = [owned("JobSet", "set", "t", apiVersion="jobset.x-k8s.io/v1alpha2"), data, node]
    first, second = pod("t-data-0", {"terminated": {"exitCode": 0}}), pod("t-node-0", {"running": {}}, nodeName="n")
    first["metadata"]["ownerReferences"] = owned("", "", "data")["metadata"]["ownerReferences"]
    second["metadata"]["ownerReferences"] = owned("", "", "node")["metadata"]["ownerReferences"]
    project = Project("1", "team-a", "runai-team-a", "team-a", "default", "", Decimal(1), Decimal(-1))
    workload = Workload(job, [first, second], None, project, "cluster")
    found = [one for one in entries(workload, parts) if one["kind"] != "Container"]
    assert [(one["kind"], one["name"], one["owner"], one["status"]) for one in found[1:]] == [
        ("JobSet", "set", "t", "Running"),
        ("Job", "data", "set", "Completed"),
        ("Job", "node", "set", "Running"),
        ("Pod", "t-data-0", "data", "ExitCode:0"),
        ("Pod", "t-node-0", "node", "Running"),
    ]
    hidden = [(one["name"], one["owner"]) for one in entries(workload, [node]) if one["kind"] in ("Job", "Pod")]
    assert hidden == [("node", "t"), ("t-data-0", "t"), ("t-node-0", "node")]
