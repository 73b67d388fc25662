"""Sentences 1 and 2: objects are complete JSON dicts; a returned write is there for everybody."""

from __future__ import annotations

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.errors import AlreadyExists
from rowlock.objects import revision, uid


async def test_1_a_created_object_is_complete(world: World) -> None:
    made = await world.create(world.config("a", x="1"))
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"x": "1"})
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("a", world.namespace)
    assert uid(made) and revision(made) > 0 and meta["creationTimestamp"].endswith("Z")


async def test_1_get_returns_what_create_returned(world: World) -> None:
    made = await world.create(world.config("a", x="1"))
    assert await world.api.get(kinds.CONFIG_MAP, world.namespace, "a") == made


async def test_1_every_item_of_a_list_says_its_kind(world: World) -> None:
    made = await world.create(world.config("a"))
    page = await world.api.list(kinds.CONFIG_MAP, world.namespace)
    assert made in page.items
    assert {(item["apiVersion"], item["kind"]) for item in page.items} == {("v1", "ConfigMap")}


async def test_1_the_callers_object_stays_its_own(world: World) -> None:
    given = world.config("a", x="1")
    before = repr(given)
    await world.create(given)
    assert repr(given) == before


async def test_1_a_name_is_generated(world: World) -> None:
    given = world.config("")
    given["metadata"] = {"generateName": "many-", "namespace": world.namespace}
    first, second = await world.create(given), await world.create(given)
    assert first["metadata"]["name"].startswith("many-") and len(first["metadata"]["name"]) == len("many-") + 5
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["generateName"] == "many-"


async def test_1_system_metadata_is_not_the_callers(world: World) -> None:
    given = world.job("a")
    given["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    made = await world.create(given)
    assert uid(made) != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")
    assert made["metadata"]["generation"] == 1


async def test_1_a_name_is_taken_once(world: World) -> None:
    await world.create(world.config("a"))
    with pytest.raises(AlreadyExists, match=r'^configmaps "a" already exists$'):
        await world.create(world.config("a"))


async def test_1_a_name_again_is_another_object(world: World) -> None:
    first = await world.create(world.config("a"))
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")
    second = await world.create(world.config("a"))
    assert uid(first) != uid(second) and revision(second) > revision(first)


async def test_2_a_write_is_seen_by_the_next_read(world: World) -> None:
    for number in range(5):
        made = await world.create(world.config(f"a{number}"))
        page = await world.api.list(kinds.CONFIG_MAP, world.namespace)
        assert made in page.items and page.revision >= revision(made)


async def test_2_cluster_wide_objects_have_no_namespace(world: World) -> None:
    name = world.namespace + "-class"
    made = await world.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    )
    assert "namespace" not in made["metadata"] and made["value"] == 7
    assert await world.api.get(kinds.PRIORITY_CLASS, "", name) == made
