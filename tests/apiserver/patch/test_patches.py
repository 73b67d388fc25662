"""The patch types on values: RFC 6902 and RFC 7386 by their examples, strategic merge by its directives."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.patch import json_patch, strategic_merge
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.schema import types
from rowlock.documents.patched_document import PatchedDocument
from rowlock.errors import ApiError, BadRequest
from rowlock.objects import merge_patch

JSON: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"foo": [1, 2, 3, 4]}, [{"op": "move", "from": "/foo/1", "path": "/foo/3"}], {"foo": [1, 3, 4, 2]}),
    ({"baz": "qux", "foo": ["a", 2]}, [{"op": "test", "path": "/foo/1", "value": 2}], {"baz": "qux", "foo": ["a", 2]}),
    ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"g": {}}}], {"foo": "bar", "child": {"g": {}}}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
]


@pytest.mark.parametrize(("target", "patch", "wanted"), JSON)
def test_json_patch(target: Any, patch: list[dict[str, Any]], wanted: Any) -> None:
    before = repr(target)
    assert json_patch.apply_json_patch(target, patch) == wanted
    assert repr(target) == before


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/baz", "value": "bar"}],
        [{"op": "add", "path": "/baz/bat", "value": "qux"}],
        [{"op": "remove", "path": "/nope"}],
        [{"op": "replace", "path": "/nope/deeper", "value": 1}],
        [{"op": "replace", "path": "/list/9", "value": 1}],
        [{"op": "add", "path": "/list/9", "value": 1}],
        [{"op": "add", "path": "/list/01", "value": 1}],
        [{"op": "remove", "path": ""}],
        [{"op": "add"}],
        [{"op": "move", "from": "/foo", "path": "/foo/child"}],
        [{"op": "jump", "path": "/foo"}],
        [{"op": "add", "path": "foo", "value": 1}],
        {"op": "add"},
        [1],
    ],
)
def test_json_patch_that_does_not_fit(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        json_patch.apply_json_patch({"foo": "bar", "list": [1]}, patch)
    assert caught.value.code in (400, 422)


MERGE: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "wanted"), MERGE)
def test_merge_patch(target: Any, patch: Any, wanted: Any) -> None:
    assert merge_patch(target, patch) == wanted


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


TWO = spec(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}])
STRATEGIC: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("by key", TWO, spec(containers=[{"name": "b", "image": "3"}]),
     spec(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "3"}])),
    ("a new element", TWO, spec(containers=[{"name": "c"}]),
     spec(containers=[{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "2"}])),
    ("a new element before one that is there", TWO, spec(containers=[{"name": "c"}, {"name": "b"}]),
     spec(containers=[{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "2"}])),
    ("delete an element", TWO, spec(containers=[{"name": "a", "$patch": "delete"}]),
     spec(containers=[{"name": "b", "image": "2"}])),
    ("replace a list", TWO, spec(containers=[{"$patch": "replace"}, {"name": "z"}]), spec(containers=[{"name": "z"}])),
    ("order", TWO, spec(**{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
     spec(containers=[{"name": "b", "image": "2"}, {"name": "a", "image": "1"}])),
    ("atomic list", spec(tolerations=[{"key": "a"}]), spec(tolerations=[{"key": "b"}]), spec(tolerations=[{"key": "b"}])),
    ("null removes", spec(nodeName="n", hostname="h"), spec(nodeName=None), spec(hostname="h")),
    ("primitive list", {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
     {"metadata": {"finalizers": ["b"]}}),
    ("primitive merge", {"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["b"]}},
     {"metadata": {"finalizers": ["b", "a"]}}),
    ("replace a map", {"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
     {"metadata": {"labels": {"b": "2"}}}),
    ("retain keys", spec(volumes=[{"name": "v", "emptyDir": {}}]),
     spec(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]),
     spec(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "patch", "wanted"), [row[1:] for row in STRATEGIC], ids=[row[0] for row in STRATEGIC]
)
def test_strategic_merge(target: dict[str, Any], patch: dict[str, Any], wanted: dict[str, Any]) -> None:
    before = repr(target)
    assert strategic_merge.strategic_merge(target, patch, types.schema_of(kinds.POD)) == wanted
    assert repr(target) == before


def test_who_only_shares_fields_by_applying_leaves_no_time() -> None:
    now = iter([10.0, 20.0, 30.0, 40.0, 50.0])
    patches = Patcher(clock=lambda: next(now))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}, "data": {"k": "1"}}

    def applied(live: dict[str, Any] | None, manager: str, value: str = "1", force: bool = False) -> dict[str, Any]:
        options = WriteOptions(manager=manager, force=force)
        return patches.apply(kinds.CONFIG_MAP, live, {**config, "data": {"k": value}}, "apply", options)

    made = applied(applied(None, "one"), "two")
    times = {entry["manager"]: entry.get("time") for entry in made["metadata"]["managedFields"]}
    assert times == {"one": "1970-01-01T00:00:10Z", "two": None}
    same = {entry["manager"]: entry.get("time") for entry in applied(made, "one")["metadata"]["managedFields"]}
    assert same == times
    with pytest.raises(ApiError) as refused:
        applied(made, "three", "2")
    said = 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.k\nconflicts with "two":\n- .data.k'
    assert refused.value.message == said


def test_copies_have_a_limit() -> None:
    """Each copy doubles the object: 26 of them would make 64 million."""
    doubling = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(26)]
    with pytest.raises(ApiError):
        json_patch.apply_json_patch({"data": {"a": "x" * 100}}, doubling)
    few = [{"op": "copy", "from": "/data/a", "path": f"/data/{n}"} for n in range(26)]
    assert len(json_patch.apply_json_patch({"data": {"a": "x"}}, few)["data"]) == 27


def test_long_lists_cost_their_length_not_its_square() -> None:
    """Measured in equality checks, not in seconds: 60,000 elements against each other would be billions."""
    many = [f"example.com/{n}" for n in range(60_000)]
    ports = [{"port": n, "protocol": "TCP"} for n in range(60_000)]
    metadata, service = types.schema_of(kinds.CONFIG_MAP), types.schema_of(kinds.SERVICE)
    begun = time.process_time()
    emptied = strategic_merge.strategic_merge(
        {"metadata": {"finalizers": many}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": many}}, metadata
    )
    assert emptied == {"metadata": {"finalizers": []}}
    merged = strategic_merge.strategic_merge({"spec": {"ports": ports}}, {"spec": {"ports": ports[::-1]}}, service)
    assert sorted(port["port"] for port in merged["spec"]["ports"]) == list(range(60_000))
    deleted = [{"port": port["port"], "$patch": "delete"} for port in ports]
    assert (
        strategic_merge.strategic_merge({"spec": {"ports": ports}}, {"spec": {"ports": deleted}}, service)["spec"][
            "ports"
        ]
        == []
    )
    assert time.process_time() - begun < 10, "a second or two; it was minutes"


def test_ten_thousand_operations_copy_a_list_once() -> None:
    target = {"list": [{"n": n} for n in range(json_patch.MAX_OPERATIONS)], "map": {}}
    before = repr(target)
    document = PatchedDocument(target)
    patch = [{"op": "replace", "path": f"/list/{n}", "value": n} for n in range(json_patch.MAX_OPERATIONS)]
    assert document.apply(patch) == {"list": list(range(json_patch.MAX_OPERATIONS)), "map": {}}
    assert len(document._own) == 2 and repr(target) == before


def test_a_copy_and_its_original_are_changed_by_themselves() -> None:
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": "/a/x", "value": {"y": 1}},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "replace", "path": "/b/x/y", "value": 2},
        {"op": "add", "path": "/a/z", "value": 3},
        {"op": "move", "from": "/a", "path": "/c"},
        {"op": "add", "path": "/a", "value": []},
        {"op": "add", "path": "/c/x/w", "value": 4},
    ]
    assert json_patch.apply_json_patch({"a": {}}, patch) == {
        "a": [],
        "b": {"x": {"y": 2}},
        "c": {"x": {"y": 1, "w": 4}, "z": 3},
    }
    assert patch[0]["value"] == {"y": 1}


@pytest.mark.parametrize("operation", [{"op": "add", "value": 1}, {"op": "remove"}])
def test_a_patch_that_moves_a_long_list_again_and_again_is_refused(operation: dict[str, Any]) -> None:
    patch = [{**operation, "path": "/list/0"}] * json_patch.MAX_OPERATIONS
    with pytest.raises(BadRequest, match="may move 50000000 elements of lists"):
        json_patch.apply_json_patch({"list": [0] * 300_000}, patch)
