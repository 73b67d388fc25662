"""Sentences 3, 4, 5 and 10: who wins, what changes, what writes nothing, and dry runs."""

from __future__ import annotations

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.api import DeleteOptions, WriteOptions
from rowlock.errors import Conflict, NotFound
from rowlock.objects import is_deleting, revision, with_field

DRY = WriteOptions(dry_run=True)


@pytest.mark.parametrize("make", ["config", "pod", "job"])
async def test_3_an_update_from_an_old_state_conflicts(world: World, make: str) -> None:
    old = await world.create(getattr(world, make)("a"))
    kind = kinds.by_object(old)
    newer = await world.api.update(kind, with_field(old, "metadata.labels", {"by": "one"}))
    with pytest.raises(Conflict, match="the object has been modified"):
        await world.api.update(kind, with_field(old, "metadata.labels", {"by": "two"}))
    assert await world.api.get(kind, world.namespace, "a") == newer


@pytest.mark.parametrize("make", ["config", "pod", "job"])
async def test_3_an_update_without_a_revision_applies_to_whatever_is_there(world: World, make: str) -> None:
    old = await world.create(getattr(world, make)("a"))
    kind = kinds.by_object(old)
    await world.api.update(kind, with_field(old, "metadata.labels", {"by": "one"}))
    free = with_field(with_field(old, "metadata.resourceVersion", None), "metadata.labels", {"by": "two"})
    assert (await world.api.update(kind, free))["metadata"]["labels"] == {"by": "two"}


@pytest.mark.parametrize("make", ["config", "job"])
async def test_3_a_patch_with_a_revision_conflicts_when_it_is_old(world: World, make: str) -> None:
    old = await world.create(getattr(world, make)("a"))
    kind, labels = kinds.by_object(old), {"labels": {"x": "1"}}
    await world.api.patch(kind, world.namespace, "a", {"metadata": labels})
    stale = {"metadata": {"labels": {"x": "2"}, "resourceVersion": old["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict):
        await world.api.patch(kind, world.namespace, "a", stale)
    now = await world.api.get(kind, world.namespace, "a")
    stale["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
    assert (await world.api.patch(kind, world.namespace, "a", stale))["metadata"]["labels"]["x"] == "2"


async def test_3_what_is_not_there_is_not_updated(world: World) -> None:
    with pytest.raises(NotFound, match=r'^configmaps "a" not found$'):
        await world.api.update(kinds.CONFIG_MAP, world.config("a"))
    with pytest.raises(NotFound, match=r'^configmaps "a" not found$'):
        await world.api.patch(kinds.CONFIG_MAP, world.namespace, "a", {"data": {"x": "1"}})


@pytest.mark.parametrize("make", ["pod", "job"])
async def test_4_status_writes_change_only_status(world: World, make: str) -> None:
    made = await world.create(getattr(world, make)("a"))
    kind = kinds.by_object(made)
    status = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}
    wish = with_field(with_field(made, "status", status), "metadata.labels", {"smuggled": "yes"})
    wrote = await world.api.update(kind, wish, subresource="status")
    assert wrote["status"]["conditions"][0]["type"] == "Ready"
    assert wrote["spec"] == made["spec"]
    assert await world.api.get(kind, world.namespace, "a") == wrote


async def test_4_a_status_write_leaves_the_spec_alone(world: World) -> None:
    made = await world.create(world.job("a"))
    wish = with_field(
        with_field(made, "status", {"startTime": "2020-01-01T00:00:00Z"}), "spec.runPolicy", {"suspend": True}
    )
    wrote = await world.api.update(kinds.PYTORCHJOB, wish, subresource="status")
    assert "suspend" not in wrote["spec"].get("runPolicy", {})
    assert wrote["status"]["startTime"] == "2020-01-01T00:00:00Z"


async def test_4_an_ordinary_write_keeps_status_as_it_was(world: World) -> None:
    await world.create(world.job("a"))
    status = {"startTime": "2020-01-01T00:00:00Z"}
    kept = await world.api.patch(kinds.PYTORCHJOB, world.namespace, "a", {"status": status}, subresource="status")
    wish = with_field(with_field(kept, "status", {"startTime": "2021-01-01T00:00:00Z"}), "metadata.labels", {"x": "1"})
    wrote = await world.api.update(kinds.PYTORCHJOB, wish)
    assert wrote["status"] == kept["status"] and wrote["metadata"]["labels"] == {"x": "1"}


async def test_4_generation_counts_changes_of_the_spec(world: World) -> None:
    made = await world.create(world.job("a"))
    assert made["metadata"]["generation"] == 1
    where = (kinds.PYTORCHJOB, world.namespace, "a")
    labelled = await world.api.patch(*where, {"metadata": {"labels": {"x": "1"}}})
    status = await world.api.patch(*where, {"status": {"startTime": "2020-01-01T00:00:00Z"}}, subresource="status")
    assert labelled["metadata"]["generation"] == status["metadata"]["generation"] == 1
    spec = await world.api.patch(*where, {"spec": {"runPolicy": {"suspend": True}}})
    assert spec["metadata"]["generation"] == 2


@pytest.mark.parametrize("make", ["pod", "job"])
async def test_4_an_update_without_managed_fields_keeps_those_that_are_there(world: World, make: str) -> None:
    """Caches leave them out, since they are half of an object; what is decided on a cache must not lose them."""
    obj = getattr(world, make)("a")
    kind = kinds.by_object(obj)
    made = await world.api.create(kind, obj, options=WriteOptions(manager="creator"))
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    slim = {**made, "metadata": {k: v for k, v in made["metadata"].items() if k != "managedFields"}}
    wish = with_field(slim, "status", {"conditions": [condition]})
    wrote = await world.api.update(kind, wish, subresource="status", options=WriteOptions(manager="observer"))
    assert [f["manager"] for f in wrote["metadata"]["managedFields"]] == ["creator", "observer"]


@pytest.mark.parametrize("make", ["config", "pod", "job"])
async def test_5_an_update_that_changes_nothing_writes_nothing(world: World, make: str) -> None:
    made = await world.create(getattr(world, make)("a"))
    kind = kinds.by_object(made)
    async with world.watch(kind, since=revision(made)) as watching:
        same = await world.api.update(kind, made)
        patched = await world.api.patch(kind, world.namespace, "a", {"metadata": {"name": "a"}})
        assert same == patched == made
        await world.api.delete(kind, world.namespace, "a")
        seen = await watching.until("Deleted")
        assert all(is_deleting(c.object) for c in seen[:-1])  # a pod may be marked before it goes


async def test_10_a_dry_create_answers_and_keeps_nothing(world: World) -> None:
    made = await world.api.create(kinds.CONFIG_MAP, world.config("a", x="1"), options=DRY)
    assert made["data"] == {"x": "1"} and made["metadata"]["uid"]
    assert not await world.exists(kinds.CONFIG_MAP, "a")


async def test_10_dry_changes_and_deletes_change_nothing(world: World) -> None:
    made = await world.create(world.config("a", x="1"))
    wish = with_field(made, "data", {"x": "2"})
    assert (await world.api.update(kinds.CONFIG_MAP, wish, options=DRY))["data"] == {"x": "2"}
    patched = await world.api.patch(kinds.CONFIG_MAP, world.namespace, "a", {"data": {"x": "3"}}, options=DRY)
    assert patched["data"] == {"x": "3"}
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a", options=DeleteOptions(dry_run=True))
    assert await world.api.get(kinds.CONFIG_MAP, world.namespace, "a") == made


async def test_10_a_dry_write_is_refused_as_a_wet_one_is(world: World) -> None:
    old = await world.create(world.config("a", x="1"))
    await world.api.update(kinds.CONFIG_MAP, with_field(old, "data", {"x": "2"}))
    with pytest.raises(Conflict):
        await world.api.update(kinds.CONFIG_MAP, with_field(old, "data", {"x": "3"}), options=DRY)
    with pytest.raises(Conflict):
        await world.api.create(kinds.CONFIG_MAP, world.config("a"), options=DRY)
