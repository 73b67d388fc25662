"""What the cluster consists of, over REST: clusters and nodes; and the door where `/api/v1/nodes` is Run:ai's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.rest.conftest import CLUSTER, World, node

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.cluster_view.reflector import Reflector
from rowlock.rest.informers import InformerCache
from rowlock.rest.visible_cache import VisibleCache

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


def test_nodes_say_whose_gpus_are_simulated(world: World) -> None:
    for name, gpus in (("node-2", 2), ("node-3", 0)):
        made = node(name, gpus)
        made["metadata"]["annotations"] = {"rowlock.dev/simulated-gpus": "true"}
        world.create(kinds.NODE, made)
    told = {"node-1": False, "node-2": True, "node-3": False}  # the last one has none
    for path in (NODES, f"/api/v1/clusters/{CLUSTER}/nodes", "/api/v1/scheduler/nodes", "/api/v1/scheduler/cards"):
        nodes = world.client.get(path).json()["nodes"]
        assert {node["name"]: node["gpusSimulated"] for node in nodes} == told, path


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
    for path, condition, word in (
        (NODES, "status==ready", "Ready"),
        (PROJECTS, "phase==Redy", "Ready"),
        ("/api/v1/workload-templates", "scopeType==projct", "project"),
    ):
        answer = world.client.get(path, params={"filterBy": condition})
        assert answer.status_code == 400 and f'Did you mean "{word}"?' in answer.json()["message"], answer.text


def test_one_cluster_by_its_id(world: World) -> None:
    one = world.client.get(f"/api/v1/clusters/{CLUSTER.upper()}").json()
    (listed,) = world.client.get("/api/v1/clusters").json()
    assert one | {"lastLiveness": ""} == listed | {"lastLiveness": ""} and one["status"]["state"] == "Connected"
    for path in ("/api/v1/clusters/x", "/api/v1/clusters/x/nodes", "/api/v1/clusters/x/nodes/count"):
        answer = world.client.get(path)
        assert answer.status_code == 404 and CLUSTER in answer.json()["message"], path


@pytest.mark.parametrize("door", ["", "/runai"])
def test_both_doors_serve_the_same(world: World, door: str) -> None:
    world.project()
    assert world.submit().status_code == 202
    for path in ("workloads", "workloads/?search=dist"):  # a slash at the end counts for nothing
        listed = world.client.get(f"{door}/api/v1/{path}").json()
        assert [w["name"] for w in listed["workloads"]] == ["dist-train1"], path
    refusals = {
        ("GET", "workload"): (404, 'Did you mean "/api/v1/workloads"?'),
        ("POST", "clusters/x/y/z"): (404, "there is no POST"),
        ("PATCH", "workloads"): (405, "it knows GET"),
        ("PUT", "token"): (405, "it knows POST"),
    }
    for (method, path), (code, words) in refusals.items():
        answer = world.client.request(method, f"{door}/api/v1/{path}")
        assert (answer.status_code, answer.json()["code"]) == (code, code) and words in answer.json()["message"], path


# ---------------------------------------------------------------- departments and quotas


DEPARTMENTS, PROJECTS = "/api/v1/org-unit/departments", "/api/v1/org-unit/projects"
BOUNDS = {
    "gpu": {"deserved": 4, "limit": 8, "overQuotaWeight": 2},
    "cpu": {"deserved": 2000, "limit": None},
    "memory": {"deserved": 2, "units": "GB"},
    "priority": "high",
}


@pytest.mark.both_engines
def test_a_department_holds_projects(world: World) -> None:
    world.project()
    made = world.client.post(
        DEPARTMENTS, json={"name": "Vision_Lab", "clusterId": world.cluster, "resources": [BOUNDS]}
    )
    assert made.status_code == 201, made.text
    body = made.json()
    assert (body["id"], body["name"]) == ("vision-lab", "Vision_Lab")
    (pool,) = body["resources"]
    assert pool["gpu"] == {"deserved": 4, "limit": 8, "overQuotaWeight": 2} and pool["priority"] == "high"
    assert pool["cpu"]["deserved"] == 2000 and pool["memory"] == {
        "deserved": 2000,
        "limit": -1,
        "overQuotaWeight": 1,
        "units": "MB",
    }
    queue = world.store.view.get(kinds.QUEUE, "", "department-vision-lab")
    assert (
        queue is not None and queue["spec"]["priority"] == 120 and queue["spec"]["resources"]["memory"]["quota"] == 2000
    )
    project = world.client.post(
        PROJECTS, json={"name": "eyes", "parentId": "vision-lab", "resources": [{"gpu": {"deserved": 1}}]}
    )
    assert project.status_code == 201, project.text
    one = world.client.get(f"{DEPARTMENTS}/Vision_Lab").json()
    assert [child["name"] for child in one["children"]] == ["eyes"]
    assert (
        world.client.get(PROJECTS, params={"filterBy": "departmentId==vision-lab"}).json()["projects"][0]["name"]
        == "eyes"
    )
    assert [d["name"] for d in world.client.get(DEPARTMENTS, params={"sortBy": "totalGpuQuota"}).json()["departments"]] == [
        "default", "Vision_Lab"
    ]  # fmt: skip
    assert world.client.get(f"{DEPARTMENTS}/count", params={"search": "vision"}).json() == {"count": 1}
    assert world.client.post(DEPARTMENTS, json={"name": "vision-lab"}).status_code == 409
    refusal = world.client.delete(f"{DEPARTMENTS}/vision-lab")
    assert refusal.status_code == 409 and "has 1 project (eyes); delete it first" in refusal.json()["message"]
    assert world.client.delete(f"{PROJECTS}/eyes").status_code == 202
    assert world.client.delete(f"{DEPARTMENTS}/vision-lab").status_code == 202, "its project has gone"
    assert world.client.get(f"{DEPARTMENTS}/vision-lab").status_code == 404


def test_a_department_goes_right_after_its_project(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the cache hears of queues later than of namespaces, as it may on a real cluster."""
    take = Reflector._take

    def take_late(reflector: Reflector, kind: Kind, key: Key, obj: Object | None) -> None:
        def take_now() -> None:
            take(reflector, kind, key, obj)

        if kind is kinds.QUEUE:
            asyncio.get_running_loop().call_later(0.2, take_now)
        else:
            take_now()

    monkeypatch.setattr(Reflector, "_take", take_late)
    assert world.client.post(DEPARTMENTS, json={"name": "vision"}).status_code == 201
    assert world.client.post(PROJECTS, json={"name": "eyes", "parentId": "vision"}).status_code == 201
    for path in (f"{PROJECTS}/eyes", f"{DEPARTMENTS}/vision"):
        answer = world.client.delete(path)
        assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("path", [f"{DEPARTMENTS}/lab", f"{PROJECTS}/team-a"])
@pytest.mark.both_engines
def test_quotas_are_changed_as_far_as_the_request_says(world: World, path: str) -> None:
    """PUT replaces the quotas that it has, PATCH what it names; what is left out stays."""
    world.project()
    assert world.client.post(DEPARTMENTS, json={"name": "lab"}).status_code == 201

    def pool() -> dict[str, Any]:
        body: dict[str, Any] = world.client.get(path).json()["resources"][0]
        return body

    assert world.client.put(path, json={"resources": [BOUNDS], "clusterId": world.cluster}).status_code == 200
    before = pool()
    assert (before["gpu"]["deserved"], before["priority"]) == (4, "high")
    assert world.client.put(path, json={"description": "new words"}).json()["description"] == "new words"
    assert pool() == before, "a description is no quota"
    assert world.client.patch(f"{path}/resources", json=[{"cpu": {"deserved": 500}, "gpu": None}]).status_code == 200
    assert pool() == {**before, "cpu": {"deserved": 500, "limit": -1, "overQuotaWeight": 1}}
    assert world.client.put(f"{path}/resources", json=[{"gpu": {"deserved": 1}}]).status_code == 200
    assert (pool()["cpu"]["deserved"], pool()["gpu"]["deserved"], pool()["priority"]) == (-1, 1, "medium")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"schedulingRules": {"trainingJobTimeLimitSeconds": 5}}, "schedulingRules: is not supported"),
        ({"defaultNodePools": ["a100"]}, "spec.nodePools"),
        ({"resources": [{"nodePool": {"id": "a100"}}]}, "quotas count over all node pools"),
        ({"resources": [{}, {}]}, "give one item"),
        ({"resources": [{"gpu": {"deserved": 2, "limit": 1}}]}, "no less than deserved (2)"),
        ({"resources": [{"memory": {"deserved": 2, "units": "GiB"}}]}, "must be one of MB, Mib, GB"),
        ({"resources": [{"priority": "hight"}]}, 'Did you mean "high"?'),
        ({"resource": []}, 'Did you mean "resources"?'),
        ({"clusterId": "x"}, "there is no cluster 'x'"),
        ({"name": "other"}, "cannot be renamed"),
    ],
)
@pytest.mark.parametrize("path", [f"{DEPARTMENTS}/default", f"{PROJECTS}/team-a"])
def test_what_is_no_quota_is_refused_with_its_reason(world: World, path: str, body: dict[str, Any], words: str) -> None:
    world.project()
    answer = world.client.put(path, json=body)
    assert answer.status_code == 400 and words in answer.json()["message"], answer.text


@pytest.mark.both_engines
def test_what_clients_send_without_a_wish_is_accepted(world: World) -> None:
    body = {
        "name": "p",
        "clusterId": world.cluster,
        "resources": [{"gpu": {"deserved": 0}}],
        "defaultNodePools": ["default"],
    }
    more: dict[str, Any] = {"schedulingRules": None, "nodeTypes": {}, "enforceRunaiScheduler": True}
    assert world.client.post(PROJECTS, json={**body, **more}).status_code == 201
    assert world.client.get("/api/v1/org-unit/priorities").json()["priorities"][3] == {
        "name": "medium", "value": 100, "isDefault": True,
    }  # fmt: skip


# ---------------------------------------------------------------- node pools


POOLS = "/api/v1/node-pools"


def test_a_node_pool_is_a_label_of_its_nodes(world: World) -> None:
    more_nodes(world)
    listed = world.client.get(POOLS).json()["nodepools"]
    assert [(p["name"], p["isDefault"], p["nodes"]) for p in listed] == [
        ("default", True, ["node-1", "node-3"]), ("a100", False, ["node-2"]),
    ]  # fmt: skip
    assert (listed[1]["labelKey"], listed[1]["labelValue"], listed[1]["phase"]) == (
        "kai.scheduler/node-pool",
        "a100",
        "Ready",
    )

    async def label() -> None:
        await world.store.patch(kinds.NODE, "", "node-3", {"metadata": {"labels": {"rack": "b"}}}, type="merge")

    world.do(label)
    world.client.get(POOLS)
    made = world.client.post(
        POOLS, json={"name": "rack-b", "labelKey": "rack", "labelValue": "b", "clusterId": world.cluster}
    )
    assert made.status_code == 201, made.text
    assert (made.json()["nodes"], made.json()["phase"]) == (["node-3"], "Unschedulable"), "its one node is not ready"
    assert world.client.get(f"{POOLS}/rack-b").json() == made.json()
    assert world.client.get(NODES, params={"filterBy": "nodePool==rack-b"}).json()["nodes"][0]["name"] == "node-3"
    assert world.client.get(f"{POOLS}/count", params={"search": "rack"}).json() == {"count": 1}
    taken = world.client.post(POOLS, json={"name": "mine", "labelKey": "rack", "labelValue": "b"})
    assert taken.status_code == 409 and "is in the node pool 'rack-b'" in taken.json()["message"]
    assert world.client.delete(f"{POOLS}/rack-b").status_code == 202
    assert world.client.get(f"{POOLS}/rack-b").status_code == 404
    assert world.client.get(NODES, params={"filterBy": "name==node-3"}).json()["nodes"][0]["nodePool"] == "default"


def test_a_pool_of_a_node_that_the_watch_has_not_sent_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(kinds.NODE, {**node("node-9", 0), "metadata": {"name": "node-9", "labels": {"rack": "c"}}})
    with monkeypatch.context() as lag:  # as on a real cluster in the first milliseconds after a node was labelled
        lag.setattr(InformerCache, "nodes", lambda _: ())
        lag.setattr(VisibleCache, "nodes", lambda _: ())
        made = world.client.post(POOLS, json={"name": "rack-c", "labelKey": "rack", "labelValue": "c"})
        assert made.status_code == 201, made.text
    assert world.client.get(f"{POOLS}/rack-c").json()["nodes"] == ["node-9"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "words"),
    [
        ("POST", POOLS, {"name": "x", "labelKey": "a", "labelValue": "b"}, 400, "no node has the label a=b"),
        ("POST", POOLS, {"name": "a_b", "labelKey": "a", "labelValue": "b"}, 400, "lower case letters"),
        ("POST", POOLS, {"name": "x"}, 400, "names the label of the nodes"),
        ("POST", POOLS, {"name": "a100", "labelKey": "a", "labelValue": "b"}, 409, "already exists"),
        ("PATCH", f"{POOLS}/a100", {"overProvisioningRatio": 3}, 400, "overProvisioningRatio: is not supported"),
        ("PUT", f"{POOLS}/default", {"labelKey": "a", "labelValue": "b"}, 409, "every node that is in no other pool"),
        ("DELETE", f"{POOLS}/default", None, 409, "cannot be deleted"),
        ("GET", f"{POOLS}/a10", None, 404, 'Did you mean "a100"?'),
    ],
)
def test_what_a_node_pool_is_not(world: World, method: str, path: str, body: Any, code: int, words: str) -> None:
    more_nodes(world)
    answer = world.client.request(method, path, json=body)
    assert answer.status_code == code and words in answer.json()["message"], answer.text


def test_telemetry_of_nodes(world: World) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "r", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    status = node("a", 4)["status"] | {"conditions": [ready]}
    world.create(kinds.NODE, {**node("a", 4), "metadata": {"name": "a", "labels": {"kai.scheduler/node-pool": "big"}}})
    world.patch(kinds.NODE, "", "a", {"status": status}, "status")
    limits = {"nvidia.com/gpu": "3"}
    world.create(kinds.NAMESPACE, {"metadata": {"name": "x"}})
    container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
    pod = {"metadata": {"name": "p", "namespace": "x"}, "spec": {"nodeName": "a", "containers": [container]}}
    world.create(kinds.POD, pod)

    def ask(name: str, more: str = "") -> list[tuple[str, ...]]:
        answer = world.client.get(f"/runai/api/v1/nodes/telemetry?telemetryType={name}{more}")
        assert answer.status_code == 200, answer.text
        return [(*(g["value"] for g in one["groups"]), one["value"]) for one in answer.json()["values"]]

    async def wait() -> None:
        assert await world.rest.cache.wait_until("", lambda: bool(list(world.rest.cache.pods())))

    world.do(wait)
    assert ask("TOTAL_GPUS") == [("5",)] and ask("READY_GPUS") == [("4",)]
    assert ask("ALLOCATED_GPUS", "&groupBy=nodepool") == [("big", "3"), ("default", "0")]
    assert ask("FREE_GPUS", "&nodepoolName=big") == [("1",)] and ask("FULLY_FREE_GPU_NODES") == [("0",)]
    wrong = world.client.get("/runai/api/v1/nodes/telemetry?telemetryType=TOTAL_GPU")
    assert wrong.status_code == 400 and 'mean "TOTAL_GPUS"?' in wrong.json()["message"]
