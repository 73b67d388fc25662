"""Work beside the answers: what is odd in it costs itself, and never the server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from rowlock import kinds
from rowlock.api import Change
from rowlock.browser.door import BrowserDoor
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.informers import InformerCache
from rowlock.storage.store import Store


class OddApi:
    """Tells an object that nobody expects, then one that is right, then nothing more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Store.open(None), name)

    async def watch(self, kind: Any, **_: Any) -> Any:
        if kind == kinds.NAMESPACE:
            yield Change("Added", 1, kind, {"metadata": {"name": "odd", "uid": "u"}})
            yield Change("Added", 2, kind, {"metadata": {"name": "right", "uid": "v"}})
        yield Change("Bookmark", 3)
        await asyncio.Event().wait()


def test_an_odd_object_costs_itself(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    real = InformerCache._index

    def index(self: InformerCache, kind: Any, key: Any, previous: Any, obj: Any) -> None:
        if obj["metadata"]["name"] == "odd":
            raise TypeError("odd")
        real(self, kind, key, previous, obj)

    async def main() -> None:
        cache = InformerCache(cast(Any, OddApi()))
        task = asyncio.create_task(cache.run())
        await cache.wait_until("", cache.has_synced, None)
        assert cache.namespace("right") is not None and not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    monkeypatch.setattr(InformerCache, "_index", index)
    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "namespaces" in caplog.text


def test_what_looks_at_everything_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rest = RestApi(cast(Any, OddApi()), RestSettings(token="t", user="u"))
        door = BrowserDoor(rest, "t", 1)
        looks: list[str] = []

        async def fail(name: str) -> None:
            looks.append(name)
            raise TypeError(name)

        monkeypatch.setattr(rest.usage, "run", lambda: fail("usage"))
        monkeypatch.setattr(door._feed, "review", lambda: fail("feed"))
        work = [asyncio.create_task(one) for one in (rest.run(), door.run())]
        while not {"usage", "feed"} <= {name for name in looks if looks.count(name) > 1}:
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in work)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 200))
