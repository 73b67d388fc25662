"""What the cluster consists of, over REST: clusters and nodes; and the door where `/api/v1/nodes` is Run:ai's."""

from __future__ import annotations

import pytest
from tests.rest.conftest import CLUSTER, World, node

from rowlock import kinds

NODES = "/runai/api/v1/nodes"


def more_nodes(world: World) -> None:
    for name, pool, gpus in (("node-2", "a100", 2), ("node-3", "", 0)):
        made = node(name, gpus)
        labels = {"kai.scheduler/node-pool": pool} if pool else {}
        made["metadata"]["labels"] = {**labels, **({"nvidia.com/gpu.product": "A100"} if gpus else {})}
        made["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]} if pool else {}
        ready = {
            "type": "Ready",
            "reason": "KubeletReady",
            "message": "fine",
            "lastTransitionTime": "2090-01-02T03:04:05Z",
        }
        made["status"]["conditions"] = [{**ready, "status": "True" if pool else "False"}]
        world.create(kinds.NODE, made)


def test_nodes_filtered_sorted_and_paged(world: World) -> None:
    more_nodes(world)
    listed = world.client.get(NODES, params={"sortBy": "name", "sortOrder": "desc", "limit": 2}).json()
    assert [n["name"] for n in listed["nodes"]] == ["node-3", "node-2"] and listed["next"] == 2
    (big,) = world.client.get(NODES, params={"filterBy": "nodePool==a100,status==Ready"}).json()["nodes"]
    assert (big["gpuInfo"], big["clusterUuid"]) == ({"gpuType": "A100", "gpuCount": 2}, CLUSTER)
    assert big["conditions"] == [{"type": "Ready", "reason": "KubeletReady", "message": "fine"}]
    assert big["taints"] == [{"key": "gpu", "value": "", "effect": "NoSchedule"}]
    assert big["updatedAt"] == "2090-01-02T03:04:05Z"
    states = {n["name"]: (n["status"], n["gpuInfo"]) for n in world.client.get(NODES).json()["nodes"]}
    assert states["node-1"] == ("Unknown", {"gpuType": "", "gpuCount": 1}) and states["node-3"] == ("NotReady", None)
    assert world.client.get(f"{NODES}/count", params={"search": "A100"}).json() == {"count": 1}
    of_the_cluster = f"/api/v1/clusters/{CLUSTER}/nodes"
    assert world.client.get(of_the_cluster, params={"nodeName": "node-2"}).json()["nodes"] == [big]
    assert world.client.get(f"{of_the_cluster}/count").json() == {"count": 3}


def test_an_unknown_field_of_a_node_is_refused_with_the_nearest(world: World) -> None:
    answer = world.client.get(NODES, params={"filterBy": "nodepool==x"})
    assert answer.status_code == 400 and 'Did you mean "nodePool"?' in answer.json()["message"]


def test_one_cluster_by_its_id(world: World) -> None:
    one = world.client.get(f"/api/v1/clusters/{CLUSTER.upper()}").json()
    assert [one] == world.client.get("/api/v1/clusters").json() and one["status"]["state"] == "Connected"
    for path in ("/api/v1/clusters/x", "/api/v1/clusters/x/nodes", "/api/v1/clusters/x/nodes/count"):
        answer = world.client.get(path)
        assert answer.status_code == 404 and CLUSTER in answer.json()["message"], path


@pytest.mark.parametrize("door", ["", "/runai"])
def test_both_doors_serve_the_same(world: World, door: str) -> None:
    world.project()
    assert world.submit().status_code == 202
    listed = world.client.get(f"{door}/api/v1/workloads").json()
    assert [w["name"] for w in listed["workloads"]] == ["dist-train1"]
    assert world.client.get(f"{door}/api/v1/workloads/?search=dist").json() == listed, (
        "a slash at the end counts for nothing"
    )
    refusals = {
        ("GET", "workload"): (404, 'Did you mean "/api/v1/workloads"?'),
        ("POST", "clusters/x/y/z"): (404, "there is no POST"),
        ("PATCH", "workloads"): (405, "it knows GET"),
        ("PUT", "token"): (405, "it knows POST"),
    }
    for (method, path), (code, words) in refusals.items():
        answer = world.client.request(method, f"{door}/api/v1/{path}")
        assert (answer.status_code, answer.json()["code"]) == (code, code) and words in answer.json()["message"], path
