"""Sentence 8: finalizers, graceful pods, preconditions, and what happens to dependents."""

from __future__ import annotations

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.errors import Conflict, NotFound
from rowlock.objects import Object, is_deleting, owner_reference, uid, with_field

NOW = DeleteOptions(grace=0)


async def test_8_a_deleted_object_is_gone(world: World) -> None:
    await world.create(world.config("a"))
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")
    with pytest.raises(NotFound, match=r'^configmaps "a" not found$'):
        await world.api.get(kinds.CONFIG_MAP, world.namespace, "a")
    with pytest.raises(NotFound, match=r'^configmaps "a" not found$'):
        await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")


@pytest.mark.parametrize("make", ["config", "job", "pod"])
async def test_8_finalizers_hold_an_object_until_the_last_is_removed(world: World, make: str) -> None:
    given = getattr(world, make)("a")
    given["metadata"]["finalizers"] = ["example.test/one", "example.test/two"]
    kind = kinds.by_object(await world.create(given))
    marked = await world.api.delete(kind, world.namespace, "a")
    assert is_deleting(marked) and marked["metadata"]["name"] == "a"
    where = (kind, world.namespace, "a")
    left = await world.api.patch(*where, {"metadata": {"finalizers": ["example.test/two"]}})
    assert is_deleting(left) and await world.exists(kind, "a")
    await world.api.update(kind, with_field(left, "metadata.finalizers", None))
    await world.gone(kind, "a")


async def test_8_a_deletion_is_marked_once(world: World) -> None:
    given = world.config("a")
    given["metadata"]["finalizers"] = ["example.test/one"]
    await world.create(given)
    first = await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")
    second = await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")
    assert first["metadata"]["deletionTimestamp"] == second["metadata"]["deletionTimestamp"]


async def test_8_an_unbound_pod_goes_at_once(world: World) -> None:
    await world.create(world.pod("a"))
    await world.api.delete(kinds.POD, world.namespace, "a")
    assert not await world.exists(kinds.POD, "a")


async def test_8_a_bound_pod_waits_for_its_kubelet(world: World) -> None:
    made = await world.create(world.pod("a", terminationGracePeriodSeconds=5, nodeName="no-such-node"))
    marked = await world.api.delete(kinds.POD, world.namespace, "a")
    assert is_deleting(marked) and marked["metadata"]["deletionGracePeriodSeconds"] == 5
    assert await world.exists(kinds.POD, "a")
    await world.api.delete(kinds.POD, world.namespace, "a", options=DeleteOptions(grace=0, uid=uid(made)))
    assert not await world.exists(kinds.POD, "a")


async def test_8_a_grace_can_be_shortened(world: World) -> None:
    await world.create(world.pod("a", nodeName="no-such-node"))
    long = await world.api.delete(kinds.POD, world.namespace, "a")
    assert long["metadata"]["deletionGracePeriodSeconds"] == 30
    short = await world.api.delete(kinds.POD, world.namespace, "a", options=DeleteOptions(grace=2))
    assert short["metadata"]["deletionGracePeriodSeconds"] == 2
    await world.api.delete(kinds.POD, world.namespace, "a", options=NOW)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (DeleteOptions(uid="another"), r"the UID in the precondition \(another\) does not match the UID in record"),
        (DeleteOptions(revision=1), r"the ResourceVersion in the precondition \(1\) does not match"),
    ],
)
async def test_8_preconditions_are_kept(world: World, wrong: DeleteOptions, told: str) -> None:
    await world.create(world.config("a"))
    with pytest.raises(Conflict, match=told):
        await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a", options=wrong)
    assert await world.exists(kinds.CONFIG_MAP, "a")


async def _family(world: World) -> Object:
    owner = await world.create(world.config("owner"))
    child = world.config("child")
    child["metadata"]["ownerReferences"] = [owner_reference(owner)]
    await world.create(child)
    return owner


@pytest.mark.parametrize("propagation", [None, "Background", "Foreground"])
async def test_8_dependents_go_with_their_owner(world: World, propagation: str | None) -> None:
    world.beyond_the_store("collection is a controller's work: none runs beside a bare store")
    await _family(world)
    options = DeleteOptions(propagation=propagation)  # type: ignore[arg-type]  # a Literal by construction
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "owner", options=options)
    await world.gone(kinds.CONFIG_MAP, "owner")
    await world.gone(kinds.CONFIG_MAP, "child")


async def test_8_a_foreground_deletion_waits_for_dependents(world: World) -> None:
    await _family(world)
    options = DeleteOptions(propagation="Foreground")
    marked = await world.api.delete(kinds.CONFIG_MAP, world.namespace, "owner", options=options)
    assert is_deleting(marked) and "foregroundDeletion" in marked["metadata"]["finalizers"]


async def test_8_orphans_stay(world: World) -> None:
    world.beyond_the_store("collection is a controller's work: none runs beside a bare store")
    await _family(world)
    orphan = DeleteOptions(propagation="Orphan")
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "owner", options=orphan)
    await world.gone(kinds.CONFIG_MAP, "owner")
    child = await world.api.get(kinds.CONFIG_MAP, world.namespace, "child")
    assert not child["metadata"].get("ownerReferences")
