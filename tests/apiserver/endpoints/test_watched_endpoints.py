"""Watches of the pods behind Services, which are computed: what informers and `kubectl get -w` need of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

MERGE = {"Content-Type": "application/merge-patch+json"}
SPEC = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}


def slices_of(space: str) -> str:
    return space.replace("/api/v1", "/apis/discovery.k8s.io/v1") + "/endpointslices"


def make_service(client: httpx.Client, space: str, name: str, **labels: str) -> None:
    client.post(
        f"{space}/services", json={"metadata": {"name": name, "labels": labels}, "spec": SPEC}
    ).raise_for_status()


def make_pod(client: httpx.Client, space: str, name: str, address: str, *, ready: bool) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": "n"}
    client.post(
        f"{space}/pods", json={"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec}
    ).raise_for_status()
    set_ready(client, space, name, address, ready=ready)


def set_ready(client: httpx.Client, space: str, name: str, address: str, *, ready: bool) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"podIP": address, "phase": "Running", "conditions": [condition]}
    client.patch(f"{space}/pods/{name}/status", json={"status": status}, headers=MERGE).raise_for_status()


@contextmanager
def watched(client: httpx.Client, path: str, **query: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a watch, as they come."""
    with client.stream("GET", path, params={"watch": "1", "timeoutSeconds": "120", **query}) as answer:
        assert answer.status_code == 200
        yield (json.loads(line) for line in answer.iter_lines() if line)


def readiness(event: dict[str, Any]) -> list[bool]:
    return [point["conditions"]["ready"] for point in event["object"]["endpoints"]]


def until(events: Iterator[dict[str, Any]], wanted: list[bool]) -> dict[str, Any]:
    """The first Modified event in which the endpoints are ready, or not, as wanted: those before it may tell what is between."""
    for event in events:
        assert event["type"] == "MODIFIED", event
        if readiness(event) == wanted:
            return event
    raise AssertionError("the watch ended")


def test_informers_list_and_watch_from_the_list(client: httpx.Client, space: str) -> None:
    make_service(client, space, "s")
    make_pod(client, space, "p", "10.0.0.9", ready=False)
    listed = client.get(slices_of(space)).json()
    revision = listed["metadata"]["resourceVersion"]
    (one,) = listed["items"]
    assert one["metadata"]["resourceVersion"] == revision and one["metadata"]["uid"]
    set_ready(client, space, "p", "10.0.0.9", ready=True)  # between the list and the watch
    with watched(client, slices_of(space), resourceVersion=revision) as events:
        event = until(events, [True])
        assert event["object"]["kind"] == "EndpointSlice"
        assert event["object"]["metadata"]["uid"] == one["metadata"]["uid"]
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(revision)
        set_ready(client, space, "p", "10.0.0.9", ready=False)
        until(events, [False])
        make_pod(client, space, "q", "10.0.0.10", ready=True)
        until(events, [False, True])
        make_service(client, space, "t")
        event = next(events)
        assert (event["type"], event["object"]["metadata"]["labels"]["kubernetes.io/service-name"]) == ("ADDED", "t")
        client.delete(f"{space}/services/s").raise_for_status()
        event = next(events)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", one["metadata"]["name"])
        latest = event["object"]["metadata"]["resourceVersion"]
    client.delete(f"{space}/services/t").raise_for_status()
    with watched(client, slices_of(space), resourceVersion=latest) as events:  # a client that resumes
        assert next(events)["type"] == "DELETED"


def test_a_watch_without_a_revision_begins_with_the_state(client: httpx.Client, space: str) -> None:
    make_service(client, space, "one")
    make_service(client, space, "two", x="y")
    with watched(client, f"{space}/endpoints", labelSelector="x=y") as events:
        event = next(events)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "two")
        client.patch(f"{space}/services/one", json={"metadata": {"labels": {"x": "y"}}}, headers=MERGE)
        event = next(events)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "one"), "it matches now"
        client.patch(f"{space}/services/two", json={"metadata": {"labels": {"x": None}}}, headers=MERGE)
        event = next(events)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "two"), "it does not any more"
    with watched(client, f"{space}/endpoints", fieldSelector="metadata.name=two") as events:
        assert next(events)["object"]["metadata"]["name"] == "two"
    listed = client.get(f"{space}/endpoints", params={"fieldSelector": "metadata.name=two"}).json()["items"]
    assert [one["metadata"]["name"] for one in listed] == ["two"]


def test_a_streaming_list_ends_with_a_bookmark(client: httpx.Client, space: str) -> None:
    make_service(client, space, "s")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with watched(client, slices_of(space), **query) as events:
        assert next(events)["type"] == "ADDED"
        bookmark = next(events)
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "EndpointSlice")
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    with watched(client, slices_of(space), resourceVersion=bookmark["object"]["metadata"]["resourceVersion"]) as events:
        client.delete(f"{space}/services/s").raise_for_status()
        assert next(events)["type"] == "DELETED"


@pytest.mark.parametrize("revision", ["1", "999999999"])
def test_a_revision_that_is_not_known_is_410(client: httpx.Client, space: str, revision: str) -> None:
    for number in range(3):
        make_service(client, space, f"s-{number}")
    with watched(client, slices_of(space), resourceVersion=revision) as events:
        event = next(events)
    if event["type"] == "ERROR":
        assert event["object"]["code"] == 410
    else:
        assert revision == "1", "a young server still knows its first revision"


def test_tables_are_watched_as_kubectl_does(client: httpx.Client, space: str) -> None:
    make_service(client, space, "s")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    query = {"watch": "1", "timeoutSeconds": "120"}
    with client.stream("GET", f"{space}/endpoints", params=query, headers=accept) as answer:
        line = json.loads(next(answer.iter_lines()))
        assert (line["type"], line["object"]["kind"], line["object"]["rows"][0]["cells"][0]) == ("ADDED", "Table", "s")


def test_a_slice_has_the_columns_of_kubectl(client: httpx.Client, space: str) -> None:
    make_service(client, space, "s")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = client.get(slices_of(space), headers=accept).json()
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "AddressType",
        "Ports",
        "Endpoints",
        "Age",
    ]
    assert table["rows"][0]["cells"][1:4] == ["IPv4", "<unset>", "<unset>"]
    for number in range(4):
        make_pod(client, space, f"p-{number}", f"10.0.0.{number}", ready=True)
    table = client.get(slices_of(space), headers=accept).json()
    assert table["rows"][0]["cells"][1:4] == ["IPv4", "80", "10.0.0.0,10.0.0.1,10.0.0.2 + 1 more..."]
