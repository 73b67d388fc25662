"""Events in their two spellings: one object, whichever group wrote it, whichever reads it."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from rowlock import objects

NOW = objects.micro_timestamp(time.time())


@pytest.fixture
def paths(space: str) -> tuple[str, str]:
    """The events of one namespace: the newer spelling's path, and the core group's."""
    name = space.rpartition("/")[2]
    return f"/apis/events.k8s.io/v1/namespaces/{name}/events", f"{space}/events"


def event(path: str, **more: Any) -> dict[str, Any]:
    space = path.split("/")[-2]
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": NOW, "type": "Normal",
        "reason": "Started", "action": "Starting", "note": "it began", "reportingController": "example.com/c",
        "reportingInstance": "c-0", "regarding": {"kind": "Pod", "name": "p", "namespace": space}, **more,
    }  # fmt: skip


def test_what_one_group_writes_the_other_reads(client: httpx.Client, paths: tuple[str, str]) -> None:
    newer, core = paths
    made = client.post(newer, json=event(newer))
    assert made.status_code == 201, made.text
    assert (made.json()["apiVersion"], made.json()["note"]) == ("events.k8s.io/v1", "it began")
    old = client.get(f"{core}/e").json()
    assert (old["apiVersion"], old["message"], old["reportingComponent"]) == ("v1", "it began", "example.com/c")
    assert old["involvedObject"]["name"] == "p" and not {"note", "regarding", "reportingController"} & set(old)
    legacy = {"metadata": {"name": "o"}, "message": "long ago", "count": 3, "source": {"component": "kubelet"}}
    about = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": core.split("/")[-2]}}
    client.post(core, json={**legacy, **about}).raise_for_status()
    seen = client.get(f"{newer}/o").json()
    assert (seen["note"], seen["deprecatedCount"], seen["deprecatedSource"]["component"]) == ("long ago", 3, "kubelet")
    listed = client.get(newer).json()
    assert (listed["kind"], listed["apiVersion"], len(listed["items"])) == ("EventList", "events.k8s.io/v1", 2)
    assert all("note" in item and "message" not in item for item in listed["items"])


def test_patches_name_the_newer_fields(client: httpx.Client, paths: tuple[str, str]) -> None:
    newer, core = paths
    client.post(newer, json=event(newer)).raise_for_status()
    series = {"series": {"count": 2, "lastObservedTime": NOW}}  # what client-go's recorder does when one repeats
    for media, patch in (
        ("application/strategic-merge-patch+json", series),
        ("application/merge-patch+json", {"metadata": {"labels": {"a": "b"}}}),
        ("application/json-patch+json", [{"op": "test", "path": "/regarding/name", "value": "p"}]),
    ):
        done = client.patch(f"{newer}/e", content=json.dumps(patch), headers={"content-type": media})
        assert done.status_code == 200, done.text
    found = client.get(f"{core}/e").json()
    assert (found["series"]["count"], found["metadata"]["labels"]) == (2, {"a": "b"})
    merge = {"content-type": "application/merge-patch+json"}
    refused = client.patch(f"{newer}/e", content=json.dumps({"note": "another"}), headers=merge)
    assert refused.json()["message"] == 'Event "e" is invalid: message: Invalid value: "another": field is immutable'
    for media, wrong in (
        ("application/merge-patch+json", {"message": "x"}),
        ("application/json-patch+json", [{"op": "add", "path": "/message", "value": "x"}]),
    ):
        refused = client.patch(f"{newer}/e", content=json.dumps(wrong), headers={"content-type": media})
        assert refused.status_code == 400 and 'unknown field "message"' in refused.json()["message"]


def test_updates_and_deletes(client: httpx.Client, paths: tuple[str, str]) -> None:
    newer, core = paths
    made = client.post(newer, json=event(newer)).json()
    put = client.put(f"{newer}/e", json={**made, "series": {"count": 2, "lastObservedTime": NOW}})
    assert (put.status_code, put.json()["series"]["count"]) == (200, 2), put.text
    assert client.put(f"{newer}/e", json={**made, "note": "changed"}).status_code == 422
    fresh = client.put(f"{newer}/f", json=event(newer, metadata={"name": "f"}))
    assert fresh.status_code == 201, "a real server makes an Event that an update does not find"
    assert client.delete(f"{newer}/e").json()["status"] == "Success"
    gone = client.get(f"{newer}/e")
    assert gone.json()["message"] == 'events.events.k8s.io "e" not found'
    assert gone.json()["details"] == {"name": "e", "group": "events.k8s.io", "kind": "events"}
    assert client.get(f"{core}/e").json()["message"] == 'events "e" not found'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eventTime": None}, "eventTime: Required value"),
        ({"type": "Odd"}, 'type: Invalid value: "": has invalid value: Odd'),
        ({"action": ""}, "action: Required value"),
        ({"reportingController": ""}, "reportingController: Required value"),
        ({"deprecatedCount": 1}, 'count: Invalid value: "": needs to be unset'),
        ({"deprecatedSource": {"component": "c"}}, 'source: Invalid value: "": needs to be unset'),
        ({"note": "x" * 1025}, 'message: Invalid value: "": can have at most 1024 characters'),
        ({"series": {"count": 1, "lastObservedTime": NOW}}, 'series.count: Invalid value: "": should be at least 2'),
    ],
)
def test_more_is_asked_of_a_newer_event(client: httpx.Client, change: dict[str, Any], said: str) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    refused = client.post(path, json=event(path, **change))
    assert refused.status_code == 422 and said in refused.json()["message"], refused.text
    assert refused.json()["message"].startswith('Event "e" is invalid: ')


def test_names_of_the_other_spelling_are_unknown(client: httpx.Client, paths: tuple[str, str]) -> None:
    newer, _ = paths
    warned = client.post(newer, json=event(newer, message="x"))
    assert warned.status_code == 201 and 'unknown field "message"' in warned.headers["warning"].replace("\\", "")
    strict = client.post(newer, params={"fieldValidation": "Strict"}, json=event(newer, message="x"))
    assert strict.status_code == 400 and 'unknown field \\"message\\"' in strict.text
    core = client.post(newer, json={**event(newer), "apiVersion": "v1"})
    assert core.status_code == 400


def test_field_selectors_and_watches(client: httpx.Client, paths: tuple[str, str]) -> None:
    newer, _ = paths
    for name in ("p", "q"):
        made = event(newer, metadata={"name": f"of-{name}"})
        made["regarding"] = {**made["regarding"], "name": name}
        client.post(newer, json=made).raise_for_status()
    found = client.get(newer, params={"fieldSelector": "regarding.name=q,reportingController!=x"}).json()
    assert [item["metadata"]["name"] for item in found["items"]] == ["of-q"]
    refused = client.get(newer, params={"fieldSelector": "involvedObject.name=q"})
    assert refused.json()["message"] == "field label not supported: involvedObject.name"
    lines = client.get(newer, params={"watch": "1", "timeoutSeconds": "1", "fieldSelector": "regarding.name=p"}).text
    change = json.loads(lines.splitlines()[0])
    assert (change["type"], change["object"]["note"]) == ("ADDED", "it began")
    table = client.get(newer, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
    assert [c["name"] for c in table["columnDefinitions"]][:4] == ["Last Seen", "Type", "Reason", "Object"]


def test_both_groups_are_discovered(client: httpx.Client) -> None:
    found = client.get("/apis/events.k8s.io/v1").json()["resources"]
    assert [(r["name"], r["kind"], r["shortNames"]) for r in found] == [("events", "Event", ["ev"])]
    assert client.get("/apis/events.k8s.io/v1/pods").status_code == 404
    assert client.get("/apis/events.k8s.io/v1/namespaces/default").status_code == 404


def test_field_selectors_tell_who_reported_from_where_it_came(client: httpx.Client, space: str) -> None:
    where = space.rpartition("/")[2]
    about = {"kind": "ConfigMap", "name": "c", "namespace": where}
    for name, who in (("source", {"source": {"component": "t"}}), ("reporter", {"reportingComponent": "t"})):
        event = {"metadata": {"name": name}, "involvedObject": about, **who}
        assert client.post(f"{space}/events", json=event).status_code == 201
    for field, names in (("reportingComponent", ["reporter"]), ("source", ["reporter", "source"])):
        found = client.get(f"{space}/events", params={"fieldSelector": f"{field}=t"}).json()["items"]
        assert [item["metadata"]["name"] for item in found] == names
