"""Sentences 6 and 7: every change after a revision, exactly once, in order; and the state before it."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.world import World, names

from rowlock import kinds
from rowlock.errors import Expired
from rowlock.objects import revision, with_field
from rowlock.selectors import parse_fields, parse_labels


async def test_6_a_watch_begins_with_the_state_and_a_bookmark(world: World) -> None:
    await world.create(world.config("b"))
    await world.create(world.config("a"))
    async with world.watch() as watching:
        seen = await watching.until("Bookmark")
        assert names(seen) == [("Added", "a"), ("Added", "b"), ("Bookmark", "")]
        assert seen[-1].revision >= max(c.revision for c in seen[:-1])
        made = await world.create(world.config("c"))
        change = await watching.next()
        assert (change.type, change.revision, change.object) == ("Added", revision(made), made)


async def test_6_an_empty_state_is_a_bookmark(world: World) -> None:
    async with world.watch(kinds.PYTORCHJOB) as watching:
        assert [c.type for c in await watching.until("Bookmark")] == ["Bookmark"]


async def test_6_every_change_after_a_revision_once_and_in_order(world: World) -> None:
    first = await world.create(world.config("a", x="0"))
    wrote = [first]
    for number in range(1, 6):
        wrote.append(await world.api.update(kinds.CONFIG_MAP, with_field(wrote[-1], "data", {"x": str(number)})))
    await world.api.delete(kinds.CONFIG_MAP, world.namespace, "a")
    async with world.watch(since=revision(wrote[2])) as watching:
        seen = await watching.until("Deleted")
    assert [c.type for c in seen] == ["Modified"] * 3 + ["Deleted"]
    assert [c.object["data"]["x"] for c in seen] == ["3", "4", "5", "5"]
    assert [c.revision for c in seen[:3]] == [revision(o) for o in wrote[3:]]
    assert seen[3].revision > seen[2].revision


async def test_6_a_watch_goes_on_where_a_list_ended(world: World) -> None:
    await world.create(world.config("a"))
    page = await world.api.list(kinds.CONFIG_MAP, world.namespace)
    await world.create(world.config("b"))
    async with world.watch(since=page.revision) as watching:
        assert names([await watching.next()]) == [("Added", "b")]


async def test_6_a_watch_can_be_taken_up_anywhere(world: World) -> None:
    start = (await world.api.list(kinds.CONFIG_MAP, world.namespace)).revision
    for number in range(4):
        await world.create(world.config(f"a{number}"))
    at, seen = start, []
    for _ in range(4):
        async with world.watch(since=at) as watching:
            change = await watching.next()
            at = change.revision
            seen.append(change)
    assert names(seen) == [("Added", f"a{n}") for n in range(4)]


async def test_6_writers_at_once_are_seen_once_each(world: World) -> None:
    async with world.watch() as watching:
        await watching.until("Bookmark")
        made = await asyncio.gather(*(world.create(world.config(f"a{n}")) for n in range(20)))
        seen = [await watching.next() for _ in made]
    assert [c.revision for c in seen] == sorted(revision(o) for o in made)


async def test_6_a_watch_of_one_namespace_sees_no_other(world: World) -> None:
    async with world.watch() as watching:
        await watching.until("Bookmark")
        elsewhere = world.config("x")
        elsewhere["metadata"]["namespace"] = "default"
        elsewhere["metadata"]["name"] = world.namespace
        await world.create(elsewhere)
        await world.create(world.config("y"))
        assert names([await watching.next()]) == [("Added", "y")]


async def test_6_an_object_that_stops_matching_is_deleted_for_the_watcher(world: World) -> None:
    async with world.watch(labels=parse_labels("team=a")) as watching:
        await watching.until("Bookmark")
        given = world.config("x")
        given["metadata"]["labels"] = {"team": "a"}
        where = (kinds.CONFIG_MAP, world.namespace, "x")
        await world.create(given)
        await world.api.patch(*where, {"metadata": {"labels": {"team": "b"}}})
        await world.api.patch(*where, {"data": {"unseen": "1"}})
        await world.api.patch(*where, {"metadata": {"labels": {"team": "a"}}})
        seen = [await watching.next() for _ in range(3)]
    assert names(seen) == [("Added", "x"), ("Deleted", "x"), ("Added", "x")]


async def test_6_fields_select_too(world: World) -> None:
    async with world.watch(fields=parse_fields("metadata.name=b")) as watching:
        await watching.until("Bookmark")
        await world.create(world.config("a"))
        await world.create(world.config("b"))
        assert names([await watching.next()]) == [("Added", "b")]


async def test_6_a_cluster_wide_watch_sees_every_namespace(world: World) -> None:
    page = await world.api.list(kinds.CONFIG_MAP)
    made = await world.create(world.config("a"))
    changes = world.api.watch(kinds.CONFIG_MAP, since=page.revision)
    async with asyncio.timeout(200):
        async for change in changes:
            if change.object == made:
                break


async def test_6_a_revision_before_all_that_is_remembered_is_expired(world: World) -> None:
    if world.subject != "real":
        pytest.skip("only a real cluster forgets on its own here; compaction of the store is tested in tests/storage")
    with pytest.raises(Expired):
        async with world.watch(since=0) as watching:
            await watching.next()


async def test_7_what_a_watch_shows_can_be_read(world: World) -> None:
    async with world.watch() as watching:
        await watching.until("Bookmark")
        writing = asyncio.create_task(world.create(world.config("a")))
        change = await watching.next()
        assert await world.api.get(kinds.CONFIG_MAP, world.namespace, "a") == change.object
        await writing
