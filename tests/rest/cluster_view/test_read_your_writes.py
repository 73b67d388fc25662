"""A GET after one's own POST, PUT or DELETE shows it: from the store of this process, and over watches that are late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette

from rowlock import kinds
from rowlock.api import Api, Change
from rowlock.controllers.read_your_writes import ReadYourWrites
from rowlock.errors import Conflict
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.informers import InformerCache
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

SEEDS = {"embedded": 200, "watched": 1000}
"""Writers per engine: a watch can be late in many ways, a call in the turn of the commit in none."""
PROJECTS, DEPARTMENTS = "/api/v1/org-unit/projects", "/api/v1/org-unit/departments"


class Late:
    """A store whose watches tell of each change some turns of the event loop later, each kind on its own."""

    def __init__(self, draw: random.Random) -> None:
        self.store, self._draw = Store.open(None), draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
        async for change in self.store.watch(kind, namespace, **options):
            for _ in range(self._draw.randrange(40)):
                await asyncio.sleep(0)
            yield change


async def change_and_look(client: httpx.AsyncClient, draw: random.Random, number: int) -> None:
    """Make a department or a project, change it and delete it; after each write, ask for what was written."""
    path, name = draw.choice((PROJECTS, DEPARTMENTS)), f"n{number}"
    made = await client.post(path, json={"name": name, "resources": [{"gpu": {"deserved": 1}}]})
    assert made.status_code == 201, made.text
    own = f"{path}/{made.json()['id']}"
    assert (await client.get(own)).json()["name"] == name
    gpus, words = draw.randrange(2, 9), f"it is number {number}"
    changed = await client.put(own, json={"description": words, "resources": [{"gpu": {"deserved": gpus}}]})
    assert changed.status_code == 200, changed.text
    shown = (await client.get(own)).json()
    assert (shown["description"], shown["resources"][0]["gpu"]["deserved"]) == (words, gpus)
    gone = await client.delete(own)
    assert gone.status_code == 202, gone.text
    after = await client.get(own)
    assert after.status_code == 404 or after.json()["status"]["phase"] == "Deleting", after.text


@pytest.mark.parametrize("engine", ["embedded", "watched"])
def test_a_get_after_ones_own_write_shows_it(engine: str) -> None:
    async def main() -> None:
        draw = random.Random(engine)
        api = Late(draw)
        view = api.store.view if engine == "embedded" else None
        for kind, obj in bootstrap.initial_objects():
            await api.store.create(kind, obj)
        rest = RestApi(cast(Api, api), RestSettings(token=None, user="ana"), view=view)
        task = asyncio.create_task(rest.run())
        transport = httpx.ASGITransport(Starlette(routes=rest.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=200) as client:
            for number in range(0, SEEDS[engine], 4):
                async with asyncio.TaskGroup() as writers:
                    for one in range(number, number + 4):
                        writers.create_task(change_and_look(client, draw, one))
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def test_the_store_tells_of_a_change_before_its_writer_goes_on() -> None:
    """No watch is between: what is written in one turn of the loop is read in the same."""

    async def main() -> None:
        store = Store.open(None)
        cache = InformerCache(store, view=store.view)
        task = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        await store.create(kinds.QUEUE, queue("a"))
        assert cache.queue("a") is not None
        assert not cache.follows(kinds.CONFIG_MAP, {"metadata": {"labels": {}}})
        await store.delete(kinds.QUEUE, "", "a")
        assert cache.queue("a") is None
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def queue(name: str) -> Object:
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


class OldCache:
    """A cache that never shows anything, and says for what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Kind, Key]] = []

    def follows(self, kind: Kind, obj: Object) -> bool:
        return kind == kinds.QUEUE

    async def wait_for_object(self, kind: Kind, key: Key, condition: Any) -> None:
        self.asked.append((kind, key))
        assert not condition(None) and not condition({"metadata": {"resourceVersion": "0"}})
        assert condition({"metadata": {"resourceVersion": "99999"}}) and condition(None), "it was there, and has gone"


def test_only_writes_that_will_show_are_waited_for() -> None:
    async def main() -> None:
        cache, store = OldCache(), Store.open(None)
        api = ReadYourWrites(store, cache)
        await api.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
        assert not cache.asked
        await api.create(kinds.QUEUE, queue("q"))
        assert cache.asked == [(kinds.QUEUE, Key("", "q"))]
        with pytest.raises(Conflict):
            await api.update(kinds.QUEUE, {**queue("q"), "metadata": {"name": "q", "resourceVersion": "999"}})
        assert len(cache.asked) == 1, "a refused write shows nowhere"

    asyncio.run(main())
