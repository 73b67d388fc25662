"""The API over HTTP: objects, watches, tables, patches, refusals; what every client relies on."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from rowlock import KUBERNETES
from rowlock.apiserver.http.requests import Call
from rowlock.apiserver.server.non_resource import serve_non_resource
from rowlock.apiserver.server.settings import ApiServerSettings

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"


def patched(client: httpx.Client, path: str, body: Any, kind: str, **query: str) -> httpx.Response:
    return client.patch(path, content=json.dumps(body), headers={"content-type": kind}, params=query)


@pytest.mark.parametrize("path", ["/api/v1/pods", "/apis", "/openapi/v3", "/api/v1/namespaces/default"])
def test_no_token_reads_nothing(client: httpx.Client, path: str) -> None:
    for header in ({"authorization": ""}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}):
        answer = client.get(path, headers=header)
        assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


def test_health_and_version_are_open(client: httpx.Client) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert client.get(path, headers={"authorization": ""}).text == "ok"
    major, minor, _ = KUBERNETES.split(".")
    assert client.get("/version").text.startswith(f'{{\n  "major": "{major}",\n  "minor": "{minor}",')
    assert client.get("/readyz/ping").text == "ok"
    assert client.get("/readyz/nosuch").status_code == 404


@pytest.mark.parametrize(
    ("path", "code"), [("readyz", 500), ("readyz/etcd", 500), ("readyz/ping", 200), ("livez", 200), ("healthz", 200)]
)
def test_a_server_whose_disk_takes_no_writes_lives_but_is_not_ready(path: str, code: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    call = cast("Call", SimpleNamespace(path=f"/{path}", query={}))
    settings = ApiServerSettings("token", is_ready=lambda: False)
    asyncio.run(serve_non_resource(call, send, settings, path.split("/")))
    assert sent[0]["status"] == code
    assert (b"[-]etcd failed" in sent[1]["body"]) == (code == 500)


def test_create_get_list_delete(client: httpx.Client, space: str) -> None:
    made = client.post(f"{space}/configmaps", json=CONFIG)
    assert made.status_code == 201
    assert client.get(f"{space}/configmaps/c").json() == made.json()
    listed = client.get(f"{space}/configmaps", params={"fieldSelector": "metadata.name=c"}).json()
    assert (listed["kind"], [o["data"] for o in listed["items"]]) == ("ConfigMapList", [{"a": "1"}])
    assert client.post(f"{space}/configmaps", json=CONFIG).status_code == 409
    gone = client.delete(f"{space}/configmaps/c").json()
    assert (gone["status"], gone["details"]["name"]) == ("Success", "c")
    assert client.get(f"{space}/configmaps/c").json()["reason"] == "NotFound"


def test_dry_run_writes_nothing(client: httpx.Client, space: str) -> None:
    assert client.post(f"{space}/configmaps", json=CONFIG, params={"dryRun": "All"}).status_code == 201
    assert client.get(f"{space}/configmaps/c").status_code == 404
    wrong = client.post(f"{space}/configmaps", json=CONFIG, params={"dryRun": "Some"})
    assert (wrong.status_code, "supported values" in wrong.json()["message"]) == (422, True)


def test_unknown_parameters_are_refused_with_the_nearest(client: httpx.Client) -> None:
    answer = client.get("/api/v1/pods", params={"labelselector": "a=b"})
    assert answer.status_code == 400
    assert 'unknown query parameter "labelselector"; did you mean labelSelector?' == answer.json()["message"]


def test_pages(client: httpx.Client, space: str) -> None:
    for name in "abcde":
        client.post(f"{space}/secrets", json={"metadata": {"name": name}})
    seen, token = [], ""
    while True:
        page = client.get(f"{space}/secrets", params={"limit": "2", "continue": token}).json()
        seen += [o["metadata"]["name"] for o in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == list("abcde")


def test_table(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/pods", json=POD)
    head = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    table = client.get(f"{space}/pods", headers=head).json()
    assert [c["name"] for c in table["columnDefinitions"][:5]] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_protobuf_answers_and_bodies(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    accepts = {"accept": "application/vnd.kubernetes.protobuf, */*"}
    assert client.get(f"{space}/configmaps/c", headers=accepts).headers["content-type"] == "application/json"
    only = {"accept": "application/vnd.kubernetes.protobuf"}
    assert client.get(f"{space}/configmaps/c", headers=only).status_code == 406
    body = b"k8s\x00" + _field(1, _field(1, b"kubeflow.org/v1") + _field(2, b"PyTorchJob")) + _field(2, b"")
    head = {"content-type": "application/vnd.kubernetes.protobuf"}
    path = space.replace("/api/v1", "/apis/kubeflow.org/v1") + "/pytorchjobs"
    refused = client.post(path, content=body, headers=head)
    assert (refused.status_code, "application/json" in refused.json()["message"]) == (415, True)
    meta, data = _field(1, b"from-protobuf"), _field(1, b"k") + _field(2, b"v")
    raw = _field(1, meta) + _field(2, data)
    body = b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, raw)
    made = client.post(f"{space}/configmaps", content=body, headers=head)
    assert (made.status_code, made.json()["data"]) == (201, {"k": "v"})


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def test_watch_begins_with_the_state_and_goes_on(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/secrets", json={"metadata": {"name": "before"}})
    query = {
        "watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true", "timeoutSeconds": "20",
    }  # fmt: skip
    with client.stream("GET", f"{space}/secrets", params=query) as stream:
        lines = stream.iter_lines()
        first, bookmark = json.loads(next(lines)), json.loads(next(lines))
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "before")
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        client.post(f"{space}/secrets", json={"metadata": {"name": "after"}})
        client.delete(f"{space}/secrets/after")
        seen = [json.loads(next(lines)) for _ in range(2)]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [("ADDED", "after"), ("DELETED", "after")]


def test_the_oldest_way_to_ask_for_a_watch(client: httpx.Client, space: str) -> None:
    """`/watch/` in the path: client libraries of the first years, and people with curl."""
    for name in ("one", "other"):
        client.post(f"{space}/secrets", json={"metadata": {"name": name}})
    old = space.replace("/api/v1", "/api/v1/watch")
    for path, count in ((f"{old}/secrets", 2), (f"{old}/secrets/other", 1)):
        with client.stream("GET", path, params={"timeoutSeconds": "20"}) as stream:
            lines = stream.iter_lines()
            seen = [json.loads(next(lines)) for _ in range(count)]
        assert (seen[-1]["type"], seen[-1]["object"]["metadata"]["name"]) == ("ADDED", "other")
    assert client.delete(f"{old}/secrets/other").status_code == 405
    assert client.get(f"{old}/pods/p/log").status_code == 404
    assert client.get("/api/v1/watch/nothing").status_code == 404


def test_patches(client: httpx.Client, space: str) -> None:
    path = f"{space}/pods/p"
    client.post(f"{space}/pods", json=POD)
    image = {"spec": {"containers": [{"name": "c", "image": "y:2"}]}}
    assert patched(client, path, image, STRATEGIC).json()["spec"]["containers"][0]["image"] == "y:2"
    assert patched(client, path, {"metadata": {"labels": {"a": "b"}}}, MERGE).json()["metadata"]["labels"] == {"a": "b"}
    remove = [{"op": "remove", "path": "/metadata/labels/a"}]
    assert "labels" not in patched(client, path, remove, JSON_PATCH).json()["metadata"]
    assert patched(client, path, remove, JSON_PATCH).status_code == 422
    assert patched(client, path, {"metadata": {"name": "q"}}, MERGE).status_code == 400
    assert patched(client, path, {}, "text/plain").status_code == 415
    moved = patched(client, path, {"spec": {"nodeSelector": {"a": "b"}}}, MERGE)
    assert (moved.status_code, "pod updates may not change" in moved.json()["message"]) == (422, True)


def test_server_side_apply(client: httpx.Client, space: str) -> None:
    path = f"{space}/configmaps/s"

    def applied(manager: str, data: dict[str, str], **query: str) -> httpx.Response:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": data}
        return patched(client, path, body, APPLY, fieldManager=manager, **query)

    assert applied("a", {"owner": "a", "mine": "1"}).status_code == 201
    clash = applied("b", {"owner": "b"})
    assert clash.status_code == 409
    assert clash.json()["message"] == 'Apply failed with 1 conflict: conflict with "a": .data.owner'
    assert clash.json()["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert applied("b", {"owner": "b"}, force="true").json()["data"] == {"owner": "b", "mine": "1"}
    assert applied("a", {}).json()["data"] == {"owner": "b"}
    unmanaged = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"a": "b"}}
    assert patched(client, path, unmanaged, APPLY).status_code == 422
    nameless = patched(client, path + "2", {"apiVersion": "v1", "kind": "ConfigMap"}, APPLY, fieldManager="a")
    assert nameless.json()["message"].startswith("the name of the object (s2 based on URL) was undeterminable")


def test_field_validation(client: httpx.Client, space: str) -> None:
    body = {**CONFIG, "nope": 1}
    strict = client.post(f"{space}/configmaps", json=body, params={"fieldValidation": "Strict"})
    assert strict.json()["message"].endswith('strict decoding error: unknown field "nope"')
    warned = client.post(f"{space}/configmaps", json=body, params={"fieldValidation": "Warn", "dryRun": "All"})
    assert warned.headers["warning"] == '299 - "unknown field \\"nope\\""'
    twice = '{"metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'
    head = {"content-type": "application/json"}
    strict = client.post(f"{space}/configmaps", content=twice, headers=head, params={"fieldValidation": "Strict"})
    assert 'duplicate field "data.a"' in strict.json()["message"]


BAD = [
    ("POST", "/api/v1/namespaces/default/pods", b"{", 400),
    ("POST", "/api/v1/namespaces/default/pods", b"[]", 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"metadata":[]}', 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"metadata":{"name":1}}', 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"metadata":{"name":"x"},"spec":[]}', 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"metadata":{"name":"x"},"spec":null}', 422),
    ("POST", "/api/v1/namespaces/default/pods", b"[" * 100_000, 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"a":NaN}', 400),
    ("POST", "/api/v1/namespaces/default/pods", b'{"kind":"Service","metadata":{"name":"x"}}', 400),
    ("POST", "/api/v1/namespaces/no-such/pods", b'{"metadata":{"name":"x"}}', 404),
    ("POST", "/api/v1/pods", b"{}", 405),
    ("PUT", "/api/v1/namespaces/default/pods", b"{}", 405),
    ("GET", "/api/v1/namespaces/default/deployments", b"", 404),
    ("GET", "/apis/apps/v1/nothings", b"", 404),
    ("GET", "/api/v1/nodes/a/b/c/d", b"", 404),
    ("GET", "/api/v1/pods/p", b"", 404),
    ("GET", "/api/v1/pods?resourceVersion=x", b"", 400),
    ("GET", "/api/v1/pods?limit=x", b"", 400),
    ("GET", "/api/v1/pods?continue=x", b"", 400),
    ("GET", "/api/v1/pods?fieldSelector=spec.x%3D1", b"", 400),
    ("GET", "/api/v1/pods?labelSelector=a+in+(b", b"", 400),
    ("DELETE", "/api/v1/namespaces/default/pods?propagationPolicy=No", b"", 422),
    ("DELETE", "/api/v1/namespaces/default/pods", b'{"gracePeriod":0}', 400),
    ("DELETE", "/api/v1/namespaces/default", b"", 403),
    ("GET", "/nosuch", b"", 404),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), BAD, ids=lambda v: str(v)[:50])
def test_bad_input_is_a_status_never_a_500(
    client: httpx.Client, method: str, path: str, body: bytes, code: int
) -> None:
    answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["kind"], answer.json()["code"]) == (code, "Status", code)


def test_a_body_too_large_is_refused(client: httpx.Client) -> None:
    answer = client.post("/api/v1/namespaces/default/configmaps", content=b"x" * (3 * 1024 * 1024 + 1))
    assert answer.status_code == 413


def test_status_is_a_door_of_its_own(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/pods", json=POD)
    done = patched(client, f"{space}/pods/p/status", {"status": {"phase": "Running"}, "metadata": {}}, MERGE).json()
    assert done["status"]["phase"] == "Running"
    again = patched(client, f"{space}/pods/p", {"status": {"phase": "Failed"}}, MERGE).json()
    assert again["status"]["phase"] == "Running"


def test_scale(client: httpx.Client, space: str) -> None:
    path = space.replace("/api/v1", "/apis/kubeflow.org/v1") + "/pytorchjobs"
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": spec}
    made = client.post(path, json=job)
    assert made.status_code == 201, made.text
    assert client.get(f"{path}/j/scale").json()["spec"] == {"replicas": 1}
    assert patched(client, f"{path}/j/scale", {"spec": {"replicas": 3}}, MERGE).json()["spec"] == {"replicas": 3}
    assert client.get(f"{path}/j").json()["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert patched(client, f"{path}/j/scale", {"spec": {"replicas": -1}}, MERGE).status_code == 422


def test_binding_and_eviction(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/pods", json=POD)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert client.post(f"{space}/pods/p/binding", json=binding).status_code == 201
    assert client.post(f"{space}/pods/p/binding", json=binding).status_code == 409
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 7}}
    assert client.post(f"{space}/pods/p/eviction", json=eviction).status_code == 201
    assert client.get(f"{space}/pods/p").json()["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_refused_eviction_leaves_no_mark_and_a_wanted_revision_is_that_of_the_caller(
    client: httpx.Client, space: str
) -> None:
    path = f"{space}/pods/p"
    client.post(f"{space}/pods", json=POD)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert client.post(f"{path}/binding", json=binding).status_code == 201
    assert patched(client, f"{path}/status", {"status": {"phase": "Running"}}, MERGE).status_code == 200
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": wrong}}
        assert client.post(f"{path}/eviction", json=eviction).status_code == 409
        assert "DisruptionTarget" not in client.get(path).text
    seen = client.get(path).json()["metadata"]
    right = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": right}}
    assert client.post(f"{path}/eviction", json=eviction).status_code == 201
    evicted = client.get(path).json()
    assert "deletionTimestamp" in evicted["metadata"]
    assert [c["type"] for c in evicted["status"]["conditions"]] == ["PodScheduled", "DisruptionTarget"]


def test_rights(client: httpx.Client) -> None:
    nobody = {"impersonate-user": "nobody"}
    refused = client.get("/api/v1/namespaces/default/pods", headers=nobody).json()
    text = 'pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "default"'
    assert (refused["code"], refused["message"]) == (403, text)
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert client.post(path, json=review).json()["status"]["allowed"] is True
    assert client.post(path, json=review, headers=nobody).json()["status"] == {"allowed": False}


def test_discovery_in_all_shapes(client: httpx.Client) -> None:
    head = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    found = client.get("/apis", headers=head)
    assert found.headers["content-type"] == head["accept"]
    assert "kubeflow.org" in [g["metadata"]["name"] for g in found.json()["items"]]
    for group in client.get("/apis").json()["groups"]:
        for version in group["versions"]:
            assert client.get(f"/apis/{version['groupVersion']}").json()["kind"] == "APIResourceList"
    for path in client.get("/openapi/v3").json()["paths"].values():
        assert client.get(path["serverRelativeURL"]).json()["openapi"] == "3.0.0"
    assert client.get("/openapi/v2").json()["swagger"] == "2.0"


def test_metadata_alone(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    head = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    found = client.get(f"{space}/configmaps", headers=head).json()
    assert found["kind"] == "PartialObjectMetadataList"
    assert all(set(o) == {"kind", "apiVersion", "metadata"} for o in found["items"])


def test_what_is_outside_the_fence_says_so(client: httpx.Client, space: str) -> None:
    resized = patched(client, f"{space}/pods/p/resize", {}, MERGE)
    assert (resized.status_code, "does not resize" in resized.json()["message"]) == (405, True)


def test_a_selector_that_no_label_can_match_is_a_mistake(client: httpx.Client, space: str) -> None:
    for selector, text in (
        ("app=a,", "found '', expected: identifier after ','"),
        ("a/b/c=d", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a qualified name must consist'),
        ("app=a_", 'unable to parse requirement: values[0][app]: Invalid value: "a_": a valid label must be'),
    ):
        answer = client.get(f"{space}/pods", params={"labelSelector": selector})
        assert (answer.status_code, text in answer.json()["message"]) == (400, True), answer.json()
    assert client.get(f"{space}/pods", params={"timeoutSeconds": "x"}).status_code == 400
    moved = client.post(f"{space}/configmaps", json=CONFIG)
    assert moved.status_code == 201
    answer = patched(client, f"{space}/configmaps/c", {"metadata": {"namespace": "x"}}, MERGE)
    assert "namespace of the provided object does not match the namespace sent on" in answer.json()["message"]


def test_an_event_of_the_newer_group_shows_times_and_no_empty_reporter(client: httpx.Client, space: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": space.rpartition("/")[2]}
    client.post(f"{space}/events", json={"metadata": {"name": "e"}, "involvedObject": about, "reason": "R"})
    core = client.get(f"{space}/events/e").json()
    assert core["eventTime"] is None and core["firstTimestamp"] is None and core["reportingComponent"] == ""
    newer = client.get(f"{space}/events/e".replace("/api/v1", "/apis/events.k8s.io/v1")).json()
    assert newer["deprecatedLastTimestamp"] is None and "reportingController" not in newer


_OWN_ENTRY = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {}},
}
UNREADABLE_ENTRIES: dict[str, dict[str, Any]] = {
    "no-operation": {k: v for k, v in _OWN_ENTRY.items() if k != "operation"},
    "odd-operation": {**_OWN_ENTRY, "operation": "Foo"},
    "no-version": {k: v for k, v in _OWN_ENTRY.items() if k != "apiVersion"},
    "no-type": {k: v for k, v in _OWN_ENTRY.items() if k != "fieldsType"},
    "odd-type": {**_OWN_ENTRY, "fieldsType": "Foo"},
    "odd-fields": {**_OWN_ENTRY, "fieldsV1": {"x": 1}},
    "fields-no-map": {**_OWN_ENTRY, "fieldsV1": []},
    "manager-alone": {"manager": "m"},
}


@pytest.mark.parametrize("case", UNREADABLE_ENTRIES)
def test_managed_fields_that_cannot_be_read_change_nothing(client: httpx.Client, space: str, case: str) -> None:
    """As kube-apiserver 1.34 answered each of these: 201 and 200, and the entries are those of the live object."""
    entries, path = [_OWN_ENTRY, UNREADABLE_ENTRIES[case]], f"{space}/configmaps"
    named = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "metadata": {"name": case}}
    told = {**named, "metadata": {"name": case, "managedFields": entries}}
    made = client.post(path, params={"fieldManager": "first"}, json=told)
    put = client.put(f"{path}/{case}", params={"fieldManager": "second"}, json=told)
    merge = {"content-type": "application/merge-patch+json"}
    change = {"metadata": {"managedFields": entries}, "data": {"b": "2"}}
    patched = client.patch(
        f"{path}/{case}", params={"fieldManager": "third"}, headers=merge, content=json.dumps(change)
    )
    assert [answer.status_code for answer in (made, put, patched)] == [201, 200, 200]
    owners = [[e["manager"] for e in answer.json()["metadata"]["managedFields"]] for answer in (made, put, patched)]
    assert owners == [["first"], ["first"], ["first", "third"]]


def test_managed_fields_by_no_name(client: httpx.Client, space: str) -> None:
    path = f"{space}/configmaps"
    named = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "metadata": {"name": "nameless"}}
    entry = {k: v for k, v in _OWN_ENTRY.items() if k != "manager"} | {"fieldsV1": {"f:data": {"f:a": {}}}}
    assert client.post(path, json=named).status_code == 201
    told = {**named, "metadata": {"name": "nameless", "managedFields": [entry]}}
    answer = client.put(f"{path}/nameless", json=told)
    assert answer.status_code == 200
    assert answer.json()["metadata"]["managedFields"] == [entry]


@pytest.mark.parametrize("entries", [["x"], {"a": 1}, [{"operation": 3}], [{"subresource": 3}]])
def test_managed_fields_of_another_type_are_refused(client: httpx.Client, space: str, entries: Any) -> None:
    told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd", "managedFields": entries}}
    answer = client.post(f"{space}/configmaps", json=told)
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    assert "managedFields" in answer.json()["message"]
