"""Server-side apply of what a configuration rarely says: nulls, empty maps, zeros, values of wrong types; and who owns
what then. Every answer here is that of kube-apiserver 1.34.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.apiserver.apply import apply_merge, field_sets
from rowlock.apiserver.schema import types

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
IMAGE = {"name": "c", "image": "x"}
Owned = dict[str, Any]


def at(space: str, plural: str, group: str = "api/v1") -> str:
    return f"/{group}/namespaces/{space.rpartition('/')[2]}/{plural}"


def sent(client: httpx.Client, path: str, body: Any, media: str = APPLY, **query: str) -> httpx.Response:
    query = {"fieldManager": "one", **query} if media == APPLY else query
    return client.patch(path, json=body, params=query, headers={"Content-Type": media, "User-Agent": "fuzz/1"})


def config(name: str = "a", **more: Any) -> dict[str, Any]:
    meta = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


def pod(container: Any, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", **meta},
        "spec": {"containers": [container]},
    }


def lease(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    return {**head, "spec": spec}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {f"{e['manager']} {e['operation']}": e["fieldsV1"] for e in obj["metadata"].get("managedFields", ())}


def test_nulls_and_empty_maps_are_values_that_somebody_owns(client: httpx.Client, space: str) -> None:
    path = at(space, "configmaps") + "/a"
    made = sent(client, path, config(data={"x": None}))
    assert made.status_code == 201 and made.json()["data"] == {"x": ""}
    assert owners(made.json()) == {"one Apply": {"f:data": {"f:x": {}}}}
    made = sent(client, path, config(data={"x": "1", "y": "2"}, metadata={"labels": None}))
    assert owners(made.json())["one Apply"] == {"f:data": {"f:x": {}, "f:y": {}}, "f:metadata": {"f:labels": {}}}
    clash = sent(client, path, config(data={"x": None}), fieldManager="two")
    assert clash.json()["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    made = sent(client, path, config(data={"x": None}), fieldManager="two", force="true")
    assert made.json()["data"] == {"x": "", "y": "2"}
    made = sent(client, path, config(data=None, immutable=False), fieldManager="two")
    assert made.json()["data"] == {"y": "2"} and made.json()["immutable"] is False
    assert owners(made.json())["two Apply"] == {"f:data": {}, "f:immutable": {}}


def test_who_names_nothing_owns_nothing(client: httpx.Client, space: str) -> None:
    made = sent(client, at(space, "configmaps") + "/a", config())
    assert made.status_code == 201 and "managedFields" not in made.json()["metadata"]
    made = sent(client, at(space, "configmaps") + "/b", config("b", metadata={"finalizers": []}))
    assert "managedFields" not in made.json()["metadata"]


BAD = "failed to create typed patch object (/a; /v1, Kind={}): {}"
UNREAD = "failed to convert new object (/a; {0}) to proper version: unable to convert unstructured object to {0}: {1}"
LEASE = "coordination.k8s.io/v1, Kind=Lease"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"data": {"x": 5}}, ".data.x: expected string, got number"),
        ({"data": {"x": ["a", True]}}, '.data.x: expected string, got array'),
        ({"data": {"x": {"a": "b"}}}, '.data.x: expected string, got object'),
        ({"data": ["q"]}, ".data: expected map, got array"),
        ({"immutable": "yes"}, ".immutable: expected boolean, got string"),
        ({"metadata": {"finalizers": ["x/y", 5]}}, ".metadata.finalizers[=5]: expected string, got number"),
        ({"metadata": {"finalizers": [None]}}, ".metadata.finalizers: element 0: associative list without keys has an element that's an explicit null"),
        ({"metadata": {"generation": "a"}}, ".metadata.generation: expected numeric (int or float), got string"),
        ({"metadata": {"deletionTimestamp": {}}}, ".metadata.deletionTimestamp: expected any scalar, got object"),
        ({"metadata": {"managedFields": 5}}, ".metadata.managedFields: expected list, got number"),
        ({"data": 5, "metadata": {"labels": {"l": 1.5}}},
         "errors:\n  .data: expected map, got number\n  .metadata.labels.l: expected string, got number"),
    ],
)  # fmt: skip
def test_a_configuration_that_the_schema_does_not_know(
    client: httpx.Client, space: str, body: dict[str, Any], why: str
) -> None:
    answer = sent(client, at(space, "configmaps") + "/a", config(**body))
    assert (answer.status_code, answer.json()["message"]) == (500, BAD.format("ConfigMap", why))
    assert "reason" not in answer.json()


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ("x", ".spec.containers: element 0: associative list with keys may not have non-map elements"),
        (None, ".spec.containers: element 0: associative list with keys may not have a null element"),
        ({**IMAGE, "command": [1]}, '.spec.containers[name="c"].command[0]: expected string, got number'),
        ({**IMAGE, "resources": {"limits": {"cpu": {}}}}, '.spec.containers[name="c"].resources.limits.cpu: expected any scalar, got object'),
        ({**IMAGE, "$patch": "delete"}, '.spec.containers[name="c"].$patch: field not declared in schema'),
    ],
)  # fmt: skip
def test_a_list_of_a_configuration(client: httpx.Client, space: str, container: Any, why: str) -> None:
    answer = sent(client, at(space, "pods") + "/a", pod(container))
    assert (answer.status_code, answer.json()["message"]) == (500, BAD.format("Pod", why))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            lease(leaseDurationSeconds=15.5),
            UNREAD.format(
                LEASE,
                "json: cannot unmarshal number 15.5 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
            ),
        ),
        (
            lease(renewTime=5),
            UNREAD.format(
                LEASE, "json: cannot unmarshal number into Go struct field LeaseSpec.spec.renewTime of type string"
            ),
        ),
        (
            lease(renewTime="noon"),
            UNREAD.format(LEASE, 'parsing time "noon": not an RFC 3339 time such as 2006-01-02T15:04:05.000000Z'),
        ),
        ({**lease(), "kind": "Secret"}, "invalid object type: coordination.k8s.io/v1, Kind=Secret"),
        ({**lease(), "apiVersion": 5}, "invalid object type: /, Kind=Lease"),
    ],
)
def test_what_a_configuration_makes_and_cannot_be_read(
    client: httpx.Client, space: str, body: dict[str, Any], why: str
) -> None:
    path = at(space, "leases", "apis/coordination.k8s.io/v1") + "/a"
    assert sent(client, path, body).json()["message"] == why
    body = lease(leaseDurationSeconds=15)
    client.post(path[:-2], json=body, headers={"User-Agent": "fuzz/1"}).raise_for_status()
    clash = sent(client, path, lease(leaseDurationSeconds=15.5))  # who owns it is asked before
    assert clash.json()["message"].endswith("coordination.k8s.io/v1: .spec.leaseDurationSeconds")


def test_what_is_asked_before_the_name(client: httpx.Client, space: str) -> None:
    path = at(space, "configmaps") + "/a"
    sent(client, path, config(data={"x": "1"}), fieldManager="two")
    clash = sent(client, path, config("zz", data={"x": "2"}))
    assert clash.status_code == 409
    assert sent(client, path, config("zz")).json()["message"].startswith("the name of the object (zz) does not match")
    assert sent(client, path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}).status_code == 200
    other = sent(client, path[:-1] + "c", config("c", metadata={"uid": "other"}))
    assert other.json()["message"].endswith("specified uid other, and no existing object was found")


def test_an_object_that_an_apply_makes_may_end_already(client: httpx.Client, space: str) -> None:
    end = {"generation": 7, "deletionTimestamp": "2126-01-02T03:04:05Z", "deletionGracePeriodSeconds": 3}
    made = sent(client, at(space, "configmaps") + "/a", config(metadata=end)).json()
    assert {k: made["metadata"].get(k) for k in end} == end
    assert owners(made) == {
        "one Apply": {"f:metadata": {"f:deletionGracePeriodSeconds": {}, "f:deletionTimestamp": {}}}
    }


@pytest.mark.parametrize("given", [[], [{}]])
def test_without_entries_none_are_kept_until_somebody_applies(client: httpx.Client, space: str, given: Any) -> None:
    path = at(space, "configmaps")
    client.post(path, json=config(data={"x": "1"}), headers={"User-Agent": "fuzz/1"}).raise_for_status()
    assert owners(sent(client, path + "/a", {"metadata": {"managedFields": None}}, MERGE).json())
    assert not owners(sent(client, path + "/a", {"metadata": {"managedFields": given}}, MERGE).json())
    assert not owners(sent(client, path + "/a", {"data": {"y": "2"}}, MERGE).json())
    clash = sent(client, path + "/a", config(data={"x": "2"}))
    assert clash.json()["details"]["causes"][0]["message"] == 'conflict with "before-first-apply" using v1'
    made = sent(client, path + "/a", config(data={"x": "1"})).json()
    assert owners(made)["before-first-apply Update"] == {"f:data": {".": {}, "f:x": {}, "f:y": {}}}


def test_a_scale_has_owners_of_its_own(client: httpx.Client, space: str) -> None:
    path = at(space, "pytorchjobs", "apis/kubeflow.org/v1")
    worker = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}}
    body = {**job, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    client.post(path, json=body, headers={"User-Agent": "fuzz/1"}).raise_for_status()
    count: Owned = {"f:spec": {"f:pytorchReplicaSpecs": {"f:Worker": {"f:replicas": {}}}}}

    def scaled(number: int) -> list[tuple[Any, ...]]:
        sent(client, path + "/j/scale", {"spec": {"replicas": number}}, MERGE).raise_for_status()
        entries = client.get(path + "/j").json()["metadata"]["managedFields"]
        return [(e.get("subresource"), "time" in e, e["fieldsV1"] == count) for e in entries]

    assert scaled(2) == [("scale", False, True), (None, True, False)]
    assert scaled(2) == [("scale", False, True), (None, True, False)]
    assert scaled(0) == [(None, True, False)]
    assert scaled(3) == [(None, True, False)]


def test_lists_merge_in_the_order_of_the_configuration() -> None:
    node = types.field_schema(types.field_schema(types.schema_of(kinds.POD), "spec") or {}, "containers") or {}

    def names(live: str, said: str) -> str:
        one, two = ([{"name": n} for n in side] for side in (live, said))
        return "".join(e["name"] for e in apply_merge.merge_config(one, two, node))

    assert [names(*sides) for sides in (("ab", "ba"), ("abc", "ca"), ("abc", "xb"), ("", "ab"), ("ab", ""))] == [
        "ba", "bca", "axbc", "ab", "ab",
    ]  # fmt: skip


def test_what_is_no_longer_named_goes_unless_somebody_owns_it() -> None:
    node = types.schema_of(kinds.CONFIG_MAP)

    def fields(**data: str) -> set[tuple[str, ...]]:
        return set(field_sets.paths(field_sets.config_fields({"data": data}, node)))

    live = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2", "z": "3"}}
    prior = fields(x="1", y="2")
    assert apply_merge.prune_unowned(live, node, prior, fields(y="2"))["data"] == {"y": "2", "z": "3"}
    only = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    assert "data" not in apply_merge.prune_unowned(only, node, fields(x="1"), set())


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("x", "(/; /v1, Kind=ConfigMap): .metadata: expected map, got string"),
        (5, "(/; /v1, Kind=ConfigMap): .metadata: expected map, got number"),
        (["a"], "(/; /v1, Kind=ConfigMap): .metadata: expected map, got array"),
        (True, "(/; /v1, Kind=ConfigMap): .metadata: expected map, got bool"),
        ({"name": "a", "managedFields": "x"}, "(/a; /v1, Kind=ConfigMap): .metadata.managedFields: expected list, got string"),
        ({"name": "a", "managedFields": {}}, "(/a; /v1, Kind=ConfigMap): .metadata.managedFields: expected list, got object"),
    ],
)  # fmt: skip
def test_metadata_that_is_none_is_told_as_any_other_misfit(
    client: httpx.Client, space: str, meta: Any, said: str
) -> None:
    """The first four were found by the fuzzer."""
    answer = sent(client, at(space, "configmaps") + "/a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    assert (answer.status_code, answer.json()["message"]) == (500, f"failed to create typed patch object {said}")
