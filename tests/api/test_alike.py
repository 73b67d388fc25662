"""What random histories, played on a real server and on ours (`tests/differential/calls.py`), found different once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.cluster.api import verbs

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SERVICE = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}


def named(space: str) -> str:
    return space.rpartition("/")[2]


def spaced(space: str, plural: str, group: str = "api/v1") -> str:
    return f"/{group}/namespaces/{named(space)}/{plural}"


def patched(client: httpx.Client, path: str, body: Any, media: str = MERGE, **query: str) -> httpx.Response:
    return client.patch(path, content=json.dumps(body), params=query, headers={"Content-Type": media})


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    (entry,) = obj["metadata"]["managedFields"]
    return dict(entry["fieldsV1"])


def test_nobody_owns_what_nobody_asked_for(client: httpx.Client, space: str) -> None:
    account = client.post(spaced(space, "serviceaccounts"), json={"metadata": {"name": "a"}}).json()
    assert "managedFields" not in account["metadata"]
    service = client.post(spaced(space, "services"), json=SERVICE).json()
    assert not {"f:clusterIPs", "f:ipFamilies", "f:ipFamilyPolicy"} & set(owned(service)["f:spec"])
    leases = spaced(space, "leases", "apis/coordination.k8s.io/v1")
    assert "managedFields" not in client.post(leases, json={"metadata": {"name": "l"}, "spec": {}}).json()["metadata"]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = client.post(spaced(space, "persistentvolumeclaims"), json={"metadata": {"name": "c"}, "spec": claim}).json()
    assert "." not in owned(made)["f:spec"]["f:resources"]


def test_a_status_that_is_applied_has_a_door_of_its_own(client: httpx.Client, space: str) -> None:
    path = spaced(space, "services") + "/s"
    client.post(spaced(space, "services"), json=SERVICE).raise_for_status()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "2126-01-02T03:04:05Z",
    }
    state = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "status": {"conditions": [ready]}}
    found = patched(client, path + "/status", {**state, "spec": {"selector": {"a": "b"}}}, APPLY, fieldManager="m")
    assert found.status_code == 200 and "selector" not in found.json()["spec"]
    entry = next(e for e in found.json()["metadata"]["managedFields"] if e["manager"] == "m")
    assert entry["subresource"] == "status" and set(entry["fieldsV1"]) == {"f:status"}
    assert len(patched(client, path, {**state, "status": {}}, APPLY, fieldManager="m").json()["status"]) > 1
    balanced = patched(client, path + "/status", {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}})
    assert balanced.status_code == 422 and "spec.type" in balanced.json()["message"]


def test_a_conflict_names_no_time(client: httpx.Client, space: str) -> None:
    client.post(spaced(space, "configmaps"), json={"metadata": {"name": "a"}, "data": {"x": "1"}}).raise_for_status()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "2"}}
    found = patched(client, spaced(space, "configmaps") + "/a", config, APPLY, fieldManager="m").json()
    assert found["message"].endswith("using v1: .data.x")


def test_elements_of_a_list_do_not_say_again_what_they_are(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    for name, head in (("a", {"apiVersion": "v1", "kind": "ConfigMap"}), ("b", {})):
        client.post(path, json={"metadata": {"name": name}, "data": {"x": "1"}, **head}).raise_for_status()
    for query in ({}, {"limit": "1"}, {"labelSelector": "!x"}):
        found = client.get(path, params=query).json()
        assert found["kind"] == "ConfigMapList" and all({"kind", "apiVersion"}.isdisjoint(o) for o in found["items"])
    assert client.get(path + "/b").json()["kind"] == "ConfigMap"


@pytest.mark.parametrize("change", [{"name": None}, {"deletionTimestamp": "2126-01-02T03:04:05Z"}])
def test_a_patch_neither_unnames_nor_ends_an_object(client: httpx.Client, space: str, change: dict[str, Any]) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a"}}).raise_for_status()
    assert patched(client, path + "/a", {"metadata": change}).status_code == (400 if "name" in change else 422)
    assert "deletionTimestamp" not in client.get(path + "/a").json()["metadata"]


def test_an_end_written_in_another_way_is_the_same_end(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a", "finalizers": ["e.test/a"]}}).raise_for_status()
    gone = client.delete(path + "/a").json()
    gone["metadata"]["deletionTimestamp"] = gone["metadata"]["deletionTimestamp"].replace("Z", "+00:00")
    gone["metadata"]["finalizers"] = []
    client.put(path + "/a", json=gone).raise_for_status()
    assert client.get(path + "/a").status_code == 404


def test_a_deletion_shows_the_object_where_a_real_one_does(client: httpx.Client, space: str) -> None:
    path = spaced(space, "services")
    client.post(path, json=SERVICE).raise_for_status()
    assert client.delete(path + "/s", headers={"Accept": TABLE}).json()["rows"][0]["cells"][0] == "s"
    client.post(path, json=SERVICE).raise_for_status()
    assert client.delete(path + "/s").json()["kind"] == "Service"


def test_an_update_means_the_object_that_it_names(client: httpx.Client, space: str) -> None:
    path = spaced(space, "leases", "apis/coordination.k8s.io/v1") + "/l"
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": ""}}
    lost = client.put(path, json={**body, "metadata": {"name": "l", "uid": "gone"}})
    assert lost.status_code == 409 and "UID in precondition: gone" in lost.json()["message"]
    assert client.put(path, json=body).json()["spec"] == {"holderIdentity": ""}
    assert client.put(path, json=body).json()["details"]["causes"][0]["field"] == "metadata.resourceVersion"


def test_a_priority_class_is_always_of_its_first_generation(client: httpx.Client, space: str) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert (
        client.put(f"{path}/{named(space)}", json={"metadata": {"name": named(space)}, "value": 1}).status_code == 404
    )
    client.post(path, json={"metadata": {"name": named(space)}, "value": 1}).raise_for_status()
    assert patched(client, f"{path}/{named(space)}", {"description": "d"}).json()["metadata"]["generation"] == 1


def test_a_number_that_is_none_cannot_be_applied(client: httpx.Client, space: str) -> None:
    worker = {"replicas": "two", "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    body = {**job, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    path = spaced(space, "pytorchjobs", "apis/kubeflow.org/v1") + "/j"
    found = patched(client, path, body, APPLY, fieldManager="m")
    assert found.json()["message"].endswith(".Worker.replicas: expected numeric (int or float), got string")
    assert "reason" not in found.json()


def test_a_json_patch_may_replace_a_field_that_is_not_there(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a"}}).raise_for_status()
    step = [{"op": "replace", "path": "/data", "value": {"x": "1"}}]
    assert patched(client, path + "/a", step, "application/json-patch+json").json()["data"] == {"x": "1"}
    step = [{"op": "remove", "path": "/nothing"}]
    assert patched(client, path + "/a", step, "application/json-patch+json").json()["details"] == {}


def test_elements_of_a_list_are_cut_or_read_anew() -> None:
    usual = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}'
    other = b'{"kind":"Secret","metadata":{"name":"b"},"apiVersion":"v1"}'
    found = verbs.array_of(kinds.SECRET, [usual, other])
    assert found == b'[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]'
    assert verbs.array_of(kinds.SECRET, []) == b"[]"
