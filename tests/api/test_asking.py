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
def test_a_flag_that_is_there_is_set(client: httpx.Client, space: str, said: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    news = watched(client, f"{space}/configmaps", watch=said, fieldSelector="metadata.name=c")
    assert [change["type"] for change in news] == ["ADDED"]


@pytest.mark.parametrize("said", ["0", "false", "False", "FALSE"])
def test_a_flag_that_says_no_is_not_set(client: httpx.Client, space: str, said: str) -> None:
    listed = client.get(f"{space}/configmaps", params={"watch": said})
    assert listed.json()["kind"] == "ConfigMapList"


def test_no_namespace_between_the_slashes_is_all_of_them(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    everywhere = client.get("/api/v1/namespaces//configmaps")
    assert everywhere.json()["items"] == client.get("/api/v1/configmaps").json()["items"] != []
    assert client.get("/api/v1/namespaces//configmaps/c").status_code == 404
    assert client.post("/api/v1/namespaces//configmaps", json=CONFIG).status_code == 405


@pytest.mark.parametrize("path", ["configmaps", "configmaps/c"])
def test_a_revision_from_the_future_has_the_cause_that_informers_look_for(
    client: httpx.Client, space: str, path: str
) -> None:
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
    assert "(must be of type PyTorchJob): Object 'Kind' is missing in '{" in nameless.json()["message"]
    versionless = client.post(path, json={"kind": "PyTorchJob", "metadata": {"name": "x"}})
    assert versionless.status_code == 400
    assert "the API version in the data () does not match" in versionless.json()["message"]


@pytest.mark.parametrize("said", [{}, {"metadata": {"name": "other"}}])
def test_an_eviction_names_its_pod(client: httpx.Client, space: str, said: dict[str, Any]) -> None:
    client.post(
        f"{space}/pods", json={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    answer = client.post(f"{space}/pods/p/eviction", json=said)
    assert (answer.status_code, answer.json()["message"]) == (400, "name in URL does not match name in Eviction object")
    assert client.get(f"{space}/pods/p").status_code == 200
