"""Watches of computed objects: many changes cost few computations, and many watchers share them."""

from __future__ import annotations

import asyncio

import pytest
from tests.storage.conftest import Opened, config, run

from rowlock import kinds, objects
from rowlock.errors import Expired
from rowlock.objects import Key
from rowlock.storage import computed_watcher
from rowlock.storage.computed_watcher import ComputedObjects, ComputedWatcher, Entries
from rowlock.storage.read_verbs import Selection
from rowlock.storage.store import Store

CM, POD = kinds.CONFIG_MAP, kinds.POD


class Counted:
    """One object that says how many ConfigMaps there are; each computation waits until it may go on."""

    def __init__(self, store: Store) -> None:
        self.store, self.computations, self.may_go_on = store, 0, asyncio.Event()
        self.may_go_on.set()
        self.objects = ComputedObjects(store, {CM}, self.compute)

    async def compute(self, revision: int | None) -> Entries:
        self.computations += 1
        count = self.store.view.count(CM)
        await self.may_go_on.wait()
        return {Key("default", "count"): b'{"metadata":{"name":"count","namespace":"default"},"count":%d}' % count}

    def watcher(self, since: int | None = None) -> ComputedWatcher:
        return ComputedWatcher(self.objects, Selection(POD), since=since)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_watcher, "LONGEST_PAUSE", 0.0)


def test_changes_during_a_computation_cost_one_more_for_all_watchers() -> None:
    async def body() -> None:
        async with Opened(None) as store:
            counted = Counted(store)
            watchers = [counted.watcher() for _ in range(20)]
            for watcher in watchers:
                (first,) = await watcher.next()
                assert (first.type, first.object["count"]) == ("Added", 0)
                assert [change.type for change in await watcher.next()] == ["Bookmark"]
            assert counted.computations == 1
            counted.may_go_on.clear()
            waiting = [asyncio.ensure_future(watcher.next()) for watcher in watchers]
            for number in range(200):
                await store.create(CM, config(f"c-{number}"))
            counted.may_go_on.set()
            while (latest := (await waiting[0])[0]).object["count"] < 200:
                waiting[0] = asyncio.ensure_future(watchers[0].next())
            assert (latest.type, objects.revision(latest.object)) == ("Modified", latest.revision)
            for watcher, begun in zip(watchers[1:], waiting[1:], strict=True):
                change = (await begun)[0]
                while change.object["count"] < 200:
                    change = (await watcher.next())[0]
            assert counted.computations <= 3, "the first, the one that 200 changes met, and one for what they changed"

    run(body())


def test_what_other_kinds_do_computes_nothing() -> None:
    async def body() -> None:
        async with Opened(None) as store:
            counted = Counted(store)
            watcher = counted.watcher()
            await watcher.next()
            await watcher.next()
            waiting = asyncio.ensure_future(watcher.next())
            for number in range(20):
                await store.create(kinds.SERVICE_ACCOUNT, config(f"a-{number}"))
            await store.create(CM, config("one"))
            assert (await waiting)[0].object["count"] == 1
            assert counted.computations == 2

    run(body())


def test_a_revision_that_nobody_knows_any_more_is_refused() -> None:
    async def body() -> None:
        async with Opened(None) as store:
            counted = Counted(store)
            await store.create(CM, config("one"))
            store.watch_cache.trim(store.revision)
            with pytest.raises(Expired, match="too old resource version"):
                await counted.watcher(since=store.revision - 1).next()
            assert counted.computations == 0

    run(body())
