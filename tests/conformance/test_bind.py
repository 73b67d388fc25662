"""Sentence 9: a pod gets one node, once."""

from __future__ import annotations

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.errors import Conflict, NotFound
from rowlock.objects import uid


async def test_9_bind_puts_a_pod_on_a_node(world: World) -> None:
    made = await world.create(world.pod("a"))
    notes = {"rowlock.dev/devices": "0,3"}
    await world.api.bind(world.namespace, "a", "node-1", annotations=notes, uid=uid(made))
    bound = await world.api.get(kinds.POD, world.namespace, "a")
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == notes
    scheduled = [c for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert [c["status"] for c in scheduled] == ["True"]


async def test_9_a_second_bind_conflicts(world: World) -> None:
    await world.create(world.pod("a"))
    await world.api.bind(world.namespace, "a", "node-1")
    for node in ("node-1", "node-2"):
        with pytest.raises(Conflict, match='pod a is already assigned to node "node-1"'):
            await world.api.bind(world.namespace, "a", node)
    assert (await world.api.get(kinds.POD, world.namespace, "a"))["spec"]["nodeName"] == "node-1"


async def test_9_another_pod_of_that_name_is_not_bound(world: World) -> None:
    await world.create(world.pod("a"))
    with pytest.raises(Conflict):
        await world.api.bind(world.namespace, "a", "node-1", uid="00000000-0000-4000-8000-000000000000")
    assert "nodeName" not in (await world.api.get(kinds.POD, world.namespace, "a"))["spec"]


async def test_9_there_must_be_a_pod(world: World) -> None:
    with pytest.raises(NotFound, match=r'^pods "a" not found$'):
        await world.api.bind(world.namespace, "a", "node-1")


async def test_9_a_pod_that_is_being_deleted_is_not_bound(world: World) -> None:
    given = world.pod("a")
    given["metadata"]["finalizers"] = ["example.test/one"]
    await world.create(given)
    await world.api.delete(kinds.POD, world.namespace, "a")
    with pytest.raises(Conflict, match="pod a is being deleted, cannot be assigned to a host"):
        await world.api.bind(world.namespace, "a", "node-1")
