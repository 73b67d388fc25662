"""Requests as clients of all languages and scripts send them: what their parameters, paths and bodies mean.

Every answer here was compared with that of kube-apiserver 1.34.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
NEWER = {"resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def watched(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    answer = client.get(path, params={"timeoutSeconds": "1", **query})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("said", ["", "1", "True", "yes"])
def test_a_flag_is_set(client: httpx.Client, space: str, said: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    news = watched(client, f"{space}/configmaps", watch=said, fieldSelector="metadata.name=c")
    assert [change["type"] for change in news] == ["ADDED"]


@pytest.mark.parametrize("said", ["0", "false", "False", "FALSE"], ids=["zero", "lower", "title", "upper"])
def test_a_flag_may_say_no(client: httpx.Client, space: str, said: str) -> None:
    listed = client.get(f"{space}/configmaps", params={"watch": said})
    assert listed.json()["kind"] == "ConfigMapList"


def test_no_namespace_between_the_slashes_is_all_of_them(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    everywhere = client.get("/api/v1/namespaces//configmaps")
    assert everywhere.json()["items"] == client.get("/api/v1/configmaps").json()["items"] != []
    assert client.get("/api/v1/namespaces//configmaps/c").status_code == 404
    assert client.post("/api/v1/namespaces//configmaps", json=CONFIG).status_code == 405


@pytest.mark.parametrize("path", ["configmaps", "configmaps/c"])
def test_informers_know_the_future(client: httpx.Client, space: str, path: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    answer = client.get(f"{space}/{path}", params={"resourceVersion": "999999999"})
    assert (answer.status_code, answer.headers["retry-after"]) == (504, "1")
    assert answer.json()["message"].startswith("Timeout: Too large resource version: 999999999, current: ")
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    assert answer.json()["details"] == {"causes": [cause], "retryAfterSeconds": 1}


def test_a_streaming_list_from_the_future_says_so_in_the_stream(client: httpx.Client, space: str) -> None:
    query = {**NEWER, "sendInitialEvents": "true", "resourceVersion": "999999999"}
    (only,) = watched(client, f"{space}/configmaps", watch="1", **query)
    assert (only["type"], only["object"]["code"]) == ("ERROR", 504)
    assert only["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_whoever_wants_no_initial_events_gets_none(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    assert watched(client, f"{space}/configmaps", watch="1", sendInitialEvents="false", **NEWER) == []


def test_an_empty_dry_run_is_refused_and_writes_nothing(client: httpx.Client, space: str) -> None:
    empty = client.post(f"{space}/configmaps?dryRun=", json=CONFIG)
    assert (empty.status_code, 'Unsupported value: [""]' in empty.json()["message"]) == (422, True)
    assert client.get(f"{space}/configmaps/c").status_code == 404
    client.post(f"{space}/configmaps", json=CONFIG)
    for asked in ({"params": {"dryRun": ""}}, {"json": {"dryRun": ["Some"]}}, {"json": {"dryRun": ["All", "Some"]}}):
        answer = client.request("DELETE", f"{space}/configmaps/c", **asked)
        assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert client.get(f"{space}/configmaps/c").status_code == 200


def test_pods_are_found_by_their_network(client: httpx.Client, space: str) -> None:
    client.post(
        f"{space}/pods", json={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    found = {}
    for said in ("true", "false"):
        listed = client.get(f"{space}/pods", params={"fieldSelector": f"spec.hostNetwork={said}"}).json()
        found[said] = [pod["metadata"]["name"] for pod in listed["items"]]
    assert found == {"true": [], "false": ["p"]}


def test_a_job_says_what_it_is(client: httpx.Client, space: str) -> None:
    path = space.replace("/api/v1", "/apis/kubeflow.org/v1") + "/pytorchjobs"
    nameless = client.post(path, json={"metadata": {"name": "x"}})
    assert nameless.status_code == 400
    assert "(must be of type PyTorchJob): Object 'Kind' is missing" in nameless.json()["message"]
    versionless = client.post(path, json={"kind": "PyTorchJob", "metadata": {"name": "x"}})
    assert versionless.status_code == 400
    assert "the API version in the data () does not match" in versionless.json()["message"]


@pytest.mark.parametrize("said", [{}, {"metadata": {"name": "other"}}])
def test_eviction_names_its_pod(client: httpx.Client, space: str, said: dict[str, Any]) -> None:
    client.post(
        f"{space}/pods", json={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    answer = client.post(f"{space}/pods/p/eviction", json=said)
    assert (answer.status_code, answer.json()["message"]) == (400, "name in URL does not match name in Eviction object")
    assert client.get(f"{space}/pods/p").status_code == 200


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("application/json;q=0.5,application/yaml", "application/yaml"),
        ("application/yaml;q=0.5,application/json", "application/json"),
        ("text/html,*/*;q=0.1", "application/json"),
    ],
)
def test_the_form_wanted_most_is_given(client: httpx.Client, accept: str, given: str) -> None:
    answer = client.get("/api/v1/namespaces/default", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, given)


def test_a_table_of_another_group_is_none(client: httpx.Client) -> None:
    head = {"accept": "application/json;as=Table;v=v1;g=nope"}
    assert client.get("/api/v1/namespaces/default", headers=head).status_code == 406
    assert (
        client.get("/api/v1/namespaces/default", headers={"accept": head["accept"] + ",*/*"}).json()["kind"]
        == "Namespace"
    )


@pytest.mark.parametrize("media", ["application/merge-patch+json", "*/*", "text/plain"], ids=["patch", "any", "text"])
@pytest.mark.parametrize("query", ["", "?fieldValidation=Ignore"], ids=["warn", "ignore"])
def test_new_media(client: httpx.Client, space: str, media: str, query: str) -> None:
    head = {"content-type": media}
    answer = client.post(f"{space}/configmaps{query}", content=json.dumps(CONFIG), headers=head)
    assert (answer.status_code, answer.json()["reason"]) == (415, "UnsupportedMediaType")


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("path", "accept"),
    [("/api", AGGREGATED), ("/apis", AGGREGATED), ("/openapi/v2", "*/*"), ("/openapi/v3/api/v1", "application/json")],
)
def test_a_document_that_a_client_has_is_not_sent_again(client: httpx.Client, path: str, accept: str) -> None:
    first = client.get(path, headers={"accept": accept})
    assert (first.status_code, first.headers["vary"]) == (200, "Accept")
    for named in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = client.get(path, headers={"accept": accept, "if-none-match": named})
        assert (again.status_code, again.content) == (304, b"")
    other = client.get(path, headers={"accept": accept, "if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_a_discovery_of_a_version_to_come_is_passed_over(client: httpx.Client) -> None:
    newer = AGGREGATED.replace("v=v2", "v=v3")
    assert client.get("/apis", headers={"accept": f"{newer},application/json"}).json()["kind"] == "APIGroupList"
    both = client.get("/apis", headers={"accept": f"{newer},{AGGREGATED},application/json"})
    assert both.headers["content-type"] == AGGREGATED


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/version"),
        ("PUT", "/api"),
        ("DELETE", "/api/v1"),
        ("PUT", "/api/v1/namespaces/default/pods/p/log"),
        ("POST", "/api/v1/namespaces/default/pods/p/status"),
        ("GET", "/api/v1/namespaces/default/finalize"),
        ("PATCH", "/api/v1/namespaces/default/finalize"),
    ],
)
def test_another_method_on_a_path_that_there_is(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    said = "the server does not allow this method on the requested resource"
    assert (answer.status_code, answer.json()["message"]) == (405, said)


@pytest.mark.parametrize(
    ("door", "body"),
    [
        ("eviction", {"metadata": "p"}),
        ("eviction", {"metadata": ["p"]}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": "now"}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": ["u"]}}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": "soon"}}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"dryRun": "All"}}),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"dryRun": [1]}}),
        ("binding", {"metadata": "p", "target": {"name": "n"}}),
        ("binding", {"metadata": {"name": "p"}, "target": "n"}),
        ("binding", {"metadata": {"name": "p", "annotations": "much"}, "target": {"name": "n"}}),
    ],
)
def test_odd_bodies_of_small_doors(client: httpx.Client, space: str, door: str, body: dict[str, Any]) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "host"}]}}
    client.post(f"{space}/pods", json=pod).raise_for_status()
    answer = client.post(f"{space}/pods/p/{door}", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert "deletionTimestamp" not in client.get(f"{space}/pods/p").json()["metadata"]


def test_an_eviction_can_name_the_pod_it_means(client: httpx.Client, space: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "host"}]}}
    client.post(f"{space}/pods", json=pod).raise_for_status()
    body = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "another"}}}
    assert client.post(f"{space}/pods/p/eviction", json=body).status_code == 409
    assert client.get(f"{space}/pods/p").status_code == 200
