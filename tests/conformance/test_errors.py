"""Sentence 11: every error is an ApiError, with Kubernetes' words and what is wrong field by field."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from rowlock.objects import with_field


async def test_11_not_found_says_what(world: World) -> None:
    with pytest.raises(NotFound) as caught:
        await world.api.get(kinds.PYTORCHJOB, world.namespace, "a")
    assert caught.value.message == 'pytorchjobs.kubeflow.org "a" not found'
    assert caught.value.details == {"name": "a", "group": "kubeflow.org", "kind": "pytorchjobs"}


async def test_11_a_namespace_must_be_there(world: World) -> None:
    given = world.config("a")
    given["metadata"]["namespace"] = "nobody-made-this"
    with pytest.raises(NotFound, match=r'^namespaces "nobody-made-this" not found$'):
        await world.create(given)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254, "with space"])
async def test_11_names_have_rules(world: World, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        await world.create(world.config(name))
    (cause, *_) = caught.value.causes
    assert (cause.reason, cause.field) == ("FieldValueInvalid", "metadata.name")


async def test_11_a_name_is_needed(world: World) -> None:
    given = world.config("")
    del given["metadata"]["name"]
    with pytest.raises(ApiError, match="name or generateName is required"):
        await world.create(given)


CASES: list[tuple[str, Any, tuple[str, str]]] = [
    ("metadata.labels", {"a b": "c"}, ("FieldValueInvalid", "metadata.labels")),
    ("spec.containers", [], ("FieldValueRequired", "spec.containers")),
    ("spec.containers", [{"name": "main"}], ("FieldValueRequired", "spec.containers[0].image")),
    ("spec.restartPolicy", "Sometimes", ("FieldValueNotSupported", "spec.restartPolicy")),
    (
        "spec.containers",
        [{"name": "a", "image": "b"}, {"name": "a", "image": "b"}],
        ("FieldValueDuplicate", "spec.containers[1].name"),
    ),
]


@pytest.mark.parametrize(("path", "value", "cause"), CASES)
async def test_11_pods_are_checked(world: World, path: str, value: Any, cause: tuple[str, str]) -> None:
    with pytest.raises(Invalid, match=r'^Pod "a" is invalid: ') as caught:
        await world.create(with_field(world.pod("a"), path, value))
    assert cause in [(c.reason, c.field) for c in caught.value.causes]


async def test_11_wrong_types_are_bad_requests(world: World) -> None:
    with pytest.raises(BadRequest):
        await world.create(with_field(world.pod("a"), "spec.containers", "many"))
    with pytest.raises(BadRequest):
        await world.create({**world.config("a"), "data": {"a": 1}})


async def test_11_what_cannot_change_does_not(world: World) -> None:
    made = await world.create(world.pod("a"))
    with pytest.raises(Invalid, match="pod updates may not change fields other than"):
        await world.api.update(kinds.POD, with_field(made, "spec.hostname", "b"))
    with pytest.raises((Invalid, Conflict)):
        await world.api.update(kinds.POD, with_field(made, "metadata.uid", "00000000-0000-4000-8000-000000000000"))


async def test_11_a_namespace_that_goes_takes_nothing_in(world: World) -> None:
    held = world.config("held")
    held["metadata"]["finalizers"] = ["example.test/one"]
    await world.create(held)
    await world.api.delete(kinds.NAMESPACE, "", world.namespace)
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await world.create(world.config("late"))
    await world.soon(
        lambda: world.api.patch(kinds.CONFIG_MAP, world.namespace, "held", {"metadata": {"finalizers": None}})
    )


async def test_11_the_object_and_the_place_agree(world: World) -> None:
    world.beyond_the_store("that a body's kind fits its path is the door's business")
    with pytest.raises(BadRequest):
        await world.api.create(kinds.CONFIG_MAP, world.pod("a"))


async def test_11_too_large_is_refused(world: World) -> None:
    with pytest.raises(ApiError) as caught:
        await world.create(world.config("a", x="y" * 2_000_000))
    assert caught.value.code in (413, 422)
