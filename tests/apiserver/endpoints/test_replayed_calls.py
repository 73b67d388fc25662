"""What random histories, played on a real server and on ours (`tests/differential/calls.py`), found different once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.apiserver.endpoints import list_answers

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
    found = list_answers.encode_items(kinds.SECRET, [usual, other])
    assert found == b'{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}'


LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2126-01-02T03:04:05Z"}
UNKNOWN = '299 - "unknown field \\"colour\\""'


def test_what_is_always_written_is_written(client: httpx.Client, space: str) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert client.post(classes, json={"metadata": {"name": "z"}}, params={"dryRun": "All"}).json()["value"] == 0
    path = spaced(space, "services")
    client.post(path, json=SERVICE).raise_for_status()
    status = patched(client, path + "/s/status", {"status": {"conditions": [CONDITION]}}).json()["status"]
    assert status["conditions"] == [{**CONDITION, "reason": "", "message": ""}]
    sticky = patched(client, path + "/s", {"spec": {"sessionAffinity": "ClientIP"}}).json()["spec"]
    assert sticky["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert (
        "sessionAffinityConfig"
        not in patched(client, path + "/s", {"spec": {"sessionAffinity": "None"}}).json()["spec"]
    )
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    client.post(f"{space}/pods", json=pod).raise_for_status()
    status = patched(client, f"{space}/pods/p/status", {"status": {"podIP": "10.0.0.9"}}).json()["status"]
    assert status["podIPs"] == [{"ip": "10.0.0.9"}]


def test_a_status_brings_metadata_along(client: httpx.Client, space: str) -> None:
    path = spaced(space, "services")
    client.post(path, json=SERVICE).raise_for_status()
    found = patched(
        client, path + "/s/status", {"metadata": {"labels": {"l": "1"}}, "spec": {"selector": {"a": "b"}}}
    ).json()
    assert found["metadata"]["labels"] == {"l": "1"} and "selector" not in found["spec"]
    wrong = patched(client, path + "/s/status", {"metadata": {"labels": {"l": "a b"}}})
    assert wrong.json()["details"]["causes"][0]["field"] == "metadata.labels"


def test_a_status_of_no_service(client: httpx.Client, space: str) -> None:
    path = spaced(space, "services") + "/s/status"
    said = 'Service "s" is invalid: spec.clusterIPs: Required value'
    assert client.put(path, json=SERVICE).json()["message"] == said
    state = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "status": {"conditions": [CONDITION]}}
    found = patched(client, path, state, APPLY, fieldManager="m")
    assert found.json()["message"] == 'Service "s" is invalid: spec.ports: Required value'
    lost = client.put(path, json={**SERVICE, "metadata": {"name": "s", "uid": "abc"}}).json()
    assert lost["message"].endswith("Precondition failed: UID in precondition: abc, UID in object meta: ")
    assert patched(client, path, {"status": {}}).status_code == 404


def test_a_service_keeps_the_address_that_nobody_writes(client: httpx.Client, space: str) -> None:
    path = spaced(space, "services")
    client.post(path, json=SERVICE).raise_for_status()
    found = client.put(path + "/s", json={**SERVICE, "spec": {"ports": [{"port": 81}]}}).json()["spec"]
    assert (found["clusterIP"], found["clusterIPs"], found["ports"][0]["port"]) == ("None", ["None"], 81)


def test_zero_is_no_revision(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a", "generation": 7}}).raise_for_status()
    found = patched(client, path + "/a", {"metadata": {"resourceVersion": "0"}, "data": {"x": "1"}})
    assert found.status_code == 200 and found.json()["metadata"]["generation"] == 7
    leases = spaced(space, "leases", "apis/coordination.k8s.io/v1")
    client.post(leases, json=LEASE).raise_for_status()
    for revision in ("0", "", None):
        answer = patched(client, leases + "/l", {"metadata": {"resourceVersion": revision}})
        assert answer.json()["details"]["causes"][0]["message"] == "Invalid value: 0: must be specified for an update"
    unread = client.put(leases + "/l", json={**LEASE, "spec": {"leaseDurationSeconds": "15"}})
    assert unread.status_code == 400 and "cannot unmarshal string" in unread.json()["message"]


def test_everything_that_may_not_change_is_said_at_once(client: httpx.Client, space: str) -> None:
    path = spaced(space, "secrets")
    client.post(path, json={"metadata": {"name": "a"}}).raise_for_status()
    end = {"deletionTimestamp": "2126-01-02T03:04:05Z", "uid": "other"}
    found = patched(client, path + "/a", {"metadata": end, "type": "kubernetes.io/basic-auth"}).json()
    assert [cause["field"] for cause in found["details"]["causes"]] == [
        "metadata.uid", "metadata.deletionTimestamp", "type", "data[username]", "data[password]",
    ], "each once, though a real server validates metadata twice"  # fmt: skip


def test_a_claim_that_may_not_shrink_or_grow(client: httpx.Client, space: str) -> None:
    path = spaced(space, "persistentvolumeclaims")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    client.post(path, json={"metadata": {"name": "c"}, "spec": claim}).raise_for_status()
    found = patched(
        client, path + "/c", {"spec": {"resources": {"requests": {"storage": "-1"}}, "volumeMode": "Block"}}
    )
    fields = dict.fromkeys(cause["field"] for cause in found.json()["details"]["causes"])  # some are asked for twice
    assert list(fields) == [
        "spec.resources[storage]", "spec", "spec.resources.requests.storage", "volumeMode",
    ]  # fmt: skip
    patched(client, path + "/c/status", {"status": {"phase": "Bound"}}).raise_for_status()
    grown = patched(client, path + "/c", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    assert grown.status_code == 403 and "the storageclass that provisions the pvc must support resize" in grown.text


def test_a_refused_write_is_warned_all_the_same(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a"}}).raise_for_status()
    for body in ({"metadata": {"name": "a", "uid": "other"}}, {"metadata": {"name": "zz"}}):
        answer = client.put(path + "/a", json={**body, "colour": "red"})
        assert answer.status_code in (400, 409) and answer.headers["warning"] == UNKNOWN
    steps = [{"op": "remove", "path": "/metadata/name"}, {"op": "add", "path": "/colour", "value": 1}]
    answer = patched(client, path + "/a", steps, "application/json-patch+json")
    assert answer.status_code == 400 and answer.headers["warning"] == UNKNOWN


def test_a_name_that_is_taken(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    client.post(path, json={"metadata": {"name": "a", "finalizers": ["e.test/a"]}}).raise_for_status()
    found = client.post(path, json={"metadata": {"name": "a", "generateName": "g-"}}).json()
    assert found["message"].endswith("the server was not able to generate a unique name for the object")
    assert found["details"]["retryAfterSeconds"] == 1
    client.delete(path + "/a").raise_for_status()
    found = client.post(path, json={"metadata": {"name": "a"}}).json()
    assert found["message"] == 'object is being deleted: configmaps "a" already exists'
    last = patched(client, path + "/a", {"metadata": {"finalizers": []}}).json()["metadata"]
    assert "finalizers" not in last and client.get(path + "/a").status_code == 404


def test_a_full_page_ends_where_it_is_full(client: httpx.Client, space: str) -> None:
    path = spaced(space, "leases", "apis/coordination.k8s.io/v1")
    for name, labels in (("a", {"l": "1"}), ("b", {})):
        client.post(path, json={**LEASE, "metadata": {"name": name, "labels": labels}}).raise_for_status()
    page = client.get(path, params={"limit": "1", "labelSelector": "l"}).json()
    assert len(page["items"]) == 1 and "remainingItemCount" not in page["metadata"]
    rest = client.get(path, params={"labelSelector": "l", "continue": page["metadata"]["continue"]}).json()
    assert rest["items"] == [] and "continue" not in rest["metadata"]
    assert "continue" not in client.get(path, params={"limit": "2"}).json()["metadata"]


def test_a_dry_run_shows_what_writing_takes_away(client: httpx.Client, space: str) -> None:
    path = spaced(space, "configmaps")
    body = {"metadata": {"name": "a", "resourceVersion": "0"}}
    assert client.post(path, json=body, params={"dryRun": "All"}).json()["metadata"]["resourceVersion"] == "0"
    client.post(path, json=body).raise_for_status()
    found = patched(client, path + "/a", {"metadata": {"selfLink": "/x"}}, dryRun="All")
    assert found.json()["metadata"]["selfLink"] == "/x"


def test_what_a_strategic_patch_cannot_convert(client: httpx.Client, space: str) -> None:
    strategic = "application/strategic-merge-patch+json"
    leases = spaced(space, "leases", "apis/coordination.k8s.io/v1")
    client.post(leases, json=LEASE).raise_for_status()
    found = patched(client, leases + "/l", {"spec": {"leaseDurationSeconds": 15.5}}, strategic).json()
    assert found["message"].endswith(
        ": json: cannot unmarshal number 15.5 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32"
    )
    client.post(spaced(space, "configmaps"), json={"metadata": {"name": "a"}}).raise_for_status()
    found = patched(client, spaced(space, "configmaps") + "/a", {"binaryData": {"x": "?"}}, strategic).json()
    assert found["message"].endswith(": a value cannot be converted: illegal base64 data at input byte 0")
    accounts = spaced(space, "serviceaccounts")
    client.post(accounts, json={"metadata": {"name": "a"}}).raise_for_status()
    found = patched(client, accounts + "/a", {"imagePullSecrets": [{"$patch": "delete", "name": "i"}]}, strategic)
    assert "imagePullSecrets" not in found.json() and "warning" not in found.headers


@pytest.mark.parametrize(("given", "kept"), [(0, None), (None, None), (7, 7)])
def test_a_generation_that_is_posted_stays_with_a_kind_that_counts_none(
    client: httpx.Client, space: str, given: int | None, kept: int | None
) -> None:
    """Zero is none: so kubectl writes an object that it has read from a real server."""
    path = f"/api/v1/namespaces/{space.rpartition('/')[2]}/configmaps"
    made = client.post(path, json={"metadata": {"name": f"g{given}".lower(), "generation": given}}).json()
    assert made["metadata"].get("generation") == kept
