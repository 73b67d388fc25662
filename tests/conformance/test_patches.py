"""The four types of patch, field managers, and validation of fields."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.api import PatchType, WriteOptions
from rowlock.errors import ApiError, BadRequest, Conflict, Invalid, UnsupportedMediaType
from rowlock.objects import Object


@pytest.mark.parametrize(
    ("type_", "patch", "expected"),
    [
        ("merge", {"data": {"b": "9", "a": None}}, {"b": "9", "c": "3"}),
        ("strategic", {"data": {"b": "9", "a": None}}, {"b": "9", "c": "3"}),
        ("strategic", {"data": {"$patch": "replace", "z": "0"}}, {"z": "0"}),
        ("json", [{"op": "replace", "path": "/data/b", "value": "9"}], {"a": "1", "b": "9", "c": "3"}),
        ("json", [{"op": "remove", "path": "/data/a"}, {"op": "test", "path": "/data/c", "value": "3"}], {"b": "2", "c": "3"}),
        ("json", [{"op": "move", "from": "/data/a", "path": "/data/d"}], {"b": "2", "c": "3", "d": "1"}),
    ],
)  # fmt: skip
async def test_patches_of_a_map(world: World, type_: PatchType, patch: Any, expected: dict[str, str]) -> None:
    await world.create(world.config("a", a="1", b="2", c="3"))
    patched = await world.api.patch(kinds.CONFIG_MAP, world.namespace, "a", patch, type=type_)
    assert patched["data"] == expected


async def test_a_strategic_patch_knows_merge_keys(world: World) -> None:
    await world.create(world.pod("a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "example.test/none:2"}]}}
    patched = await world.api.patch(kinds.POD, world.namespace, "a", patch, type="strategic")
    assert [(c["name"], c["image"], c["command"]) for c in patched["spec"]["containers"]] == [
        ("main", "example.test/none:2", ["true"])
    ]


async def test_custom_kinds_know_no_strategic_patch(world: World) -> None:
    await world.create(world.job("a"))
    with pytest.raises(UnsupportedMediaType):
        await world.api.patch(kinds.PYTORCHJOB, world.namespace, "a", {"metadata": {}}, type="strategic")


async def test_a_failed_test_changes_nothing(world: World) -> None:
    made = await world.create(world.config("a", x="1"))
    steps = [{"op": "test", "path": "/data/x", "value": "2"}, {"op": "remove", "path": "/data/x"}]
    with pytest.raises(Invalid):
        await world.api.patch(kinds.CONFIG_MAP, world.namespace, "a", steps, type="json")
    assert await world.api.get(kinds.CONFIG_MAP, world.namespace, "a") == made


async def test_a_patch_that_is_none_is_refused(world: World) -> None:
    await world.create(world.config("a", x="1"))
    with pytest.raises(ApiError) as caught:
        await world.api.patch(kinds.CONFIG_MAP, world.namespace, "a", [{"op": "jump", "path": "/data/x"}], type="json")
    assert caught.value.code in (400, 422)


def _applied(world: World, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


async def _apply(world: World, manager: str, *, force: bool = False, **data: str) -> Object:
    options = WriteOptions(manager=manager, force=force)
    return await world.api.patch(
        kinds.CONFIG_MAP, world.namespace, "a", _applied(world, **data), type="apply", options=options
    )


async def test_apply_creates_and_owns(world: World) -> None:
    made = await _apply(world, "one", x="1", y="1")
    assert made["data"] == {"x": "1", "y": "1"}
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:x": {}, "f:y": {}}} or entry["fieldsV1"] == {
        "f:data": {"f:x": {}, "f:y": {}}
    }


async def test_apply_removes_what_its_manager_no_longer_wants(world: World) -> None:
    await _apply(world, "one", x="1", y="1")
    await _apply(world, "two", z="1")
    assert (await _apply(world, "one", x="1"))["data"] == {"x": "1", "z": "1"}


async def test_apply_conflicts_with_another_manager_until_forced(world: World) -> None:
    await _apply(world, "one", x="1")
    with pytest.raises(Conflict, match='conflict with "one"') as caught:
        await _apply(world, "two", x="2")
    assert [(c.reason, c.field) for c in caught.value.causes] == [("FieldManagerConflict", ".data.x")]
    assert (await _apply(world, "two", force=True, x="2"))["data"] == {"x": "2"}
    with pytest.raises(Conflict, match='conflict with "two"'):
        await _apply(world, "one", x="1")


async def test_two_managers_may_agree(world: World) -> None:
    await _apply(world, "one", x="1")
    both = await _apply(world, "two", x="1")
    assert sorted(entry["manager"] for entry in both["metadata"]["managedFields"]) == ["one", "two"]
    assert (await _apply(world, "one"))["data"] == {"x": "1"}


async def test_apply_twice_writes_once(world: World) -> None:
    first = await _apply(world, "one", x="1")
    assert await _apply(world, "one", x="1") == first


async def test_strict_validation_names_unknown_fields(world: World) -> None:
    given = {**world.pod("a"), "colour": "red"}
    given["spec"] = {**given["spec"], "colour": "blue"}
    strict = WriteOptions(validation="Strict")
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec.colour", unknown field "colour"'):
        await world.api.create(kinds.POD, given, options=strict)


@pytest.mark.parametrize("make", ["pod", "job"])
async def test_warnings_come_back_and_unknown_fields_are_dropped(world: World, make: str) -> None:
    given = getattr(world, make)("a")
    given["spec"] = {**given["spec"], "colour": "blue"}
    options = WriteOptions(validation="Warn")
    made = await world.api.create(kinds.by_object(given), given, options=options)
    assert "colour" not in made["spec"]
    assert options.warnings == ['unknown field "spec.colour"']


async def test_who_applies_an_ephemeral_container_owns_it(world: World) -> None:
    await world.create(world.pod("a"))
    given = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    given |= {"spec": {"ephemeralContainers": [{"name": "look", "image": "example.test/none:1"}]}}
    patched = await world.api.patch(
        kinds.POD,
        world.namespace,
        "a",
        given,
        type="apply",
        subresource="ephemeralcontainers",
        options=WriteOptions(manager="me"),
    )
    assert [c["name"] for c in patched["spec"]["ephemeralContainers"]] == ["look"]
    (entry,) = [e for e in patched["metadata"]["managedFields"] if e["manager"] == "me"]
    assert (entry["operation"], entry["subresource"]) == ("Apply", "ephemeralcontainers")
    assert 'k:{"name":"look"}' in entry["fieldsV1"]["f:spec"]["f:ephemeralContainers"]
