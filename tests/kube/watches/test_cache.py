"""The cache over an API that misbehaves on request: what controllers see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import until_async

from rowlock import kinds
from rowlock.api import Change
from rowlock.errors import ApiError, Expired, NotFound, Unavailable, Unsupported
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.kube.rate_limit import Backoff
from rowlock.objects import Object, with_field
from rowlock.storage.store import Store

KINDS = (kinds.NAMESPACE, kinds.CONFIG_MAP)


class Flaky:
    """A store whose watches end with the errors that are put on `faults`."""

    def __init__(self) -> None:
        self.store = Store.open(None)
        self.faults: asyncio.Queue[tuple[Kind, ApiError]] = asyncio.Queue()
        self.since: list[tuple[Kind, int | None]] = []
        self.refused: dict[Kind, ApiError] = {}
        self._broken: dict[Kind, asyncio.Future[ApiError]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def fail(self, kind: Kind, error: ApiError) -> None:
        self._broken[kind].set_result(error)

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
        self.since.append((kind, options.get("since")))
        if kind in self.refused:
            raise self.refused[kind]
        broken = self._broken[kind] = asyncio.get_running_loop().create_future()
        watch = self.store.watch(kind, namespace, **options)
        while True:
            step = asyncio.ensure_future(anext(watch))
            await asyncio.wait([step, broken], return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                step.cancel()
                await asyncio.wait([step])
                raise broken.result()
            yield step.result()


def config(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"}, "data": data}


class Scene:
    """A cache at work and everything a subscriber heard."""

    def __init__(self) -> None:
        self.api = Flaky()
        self.cache = Cache(self.api, KINDS, backoff=lambda: Backoff(0.001, 0.01))
        self.heard: list[tuple[str, str, bool]] = []

    async def create(self, obj: Object) -> Object:
        return await self.api.store.create(kinds.by_object(obj), obj)

    async def listen(self) -> None:
        async for change in self.cache.changes():
            name = change.object.get("metadata", {}).get("name", "")
            self.heard.append((change.type, name, change.old is not None))

    async def until(self, true: Callable[[], bool]) -> None:
        await until_async(true)


def play(act: Callable[[Scene], Awaitable[None]]) -> Scene:
    scene = Scene()

    async def run() -> None:
        await scene.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await scene.create(config("a", x="1"))
        tasks = [asyncio.create_task(scene.cache.run()), asyncio.create_task(scene.listen())]
        await scene.cache.synced.wait()
        await act(scene)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())
    return scene


START = [("Added", "team", False), ("Added", "a", False), ("Bookmark", "", False)]


def test_a_subscriber_hears_the_state_and_then_what_happens() -> None:
    async def act(scene: Scene) -> None:
        await scene.until(lambda: len(scene.heard) == 3)
        made = await scene.create(config("b"))
        await scene.api.update(kinds.CONFIG_MAP, with_field(made, "data", {"x": "2"}))
        await scene.api.delete(kinds.CONFIG_MAP, "team", "b")
        await scene.until(lambda: len(scene.heard) == 6)

    scene = play(act)
    assert sorted(scene.heard[:3]) == sorted(START)
    assert scene.heard[3:] == [("Added", "b", False), ("Modified", "b", True), ("Deleted", "b", True)]


def test_the_view_is_the_stores() -> None:
    async def act(scene: Scene) -> None:
        for name in "dbc":
            made = config(name)
            made["metadata"]["ownerReferences"] = [{"uid": "u", "kind": "X", "apiVersion": "v1", "name": "x"}]
            made["metadata"]["labels"] = {"pod-group-name": "g", "other": name}
            await scene.create(made)
        view, truth = scene.cache.view, scene.api.store.view
        await scene.until(lambda: view.revision >= truth.revision)
        kind = kinds.CONFIG_MAP
        for ask in (
            lambda v: v.all(kind),
            lambda v: v.all(kind, "team"),
            lambda v: v.all(kind, "none"),
            lambda v: v.by_owner(kind, "u"),
            lambda v: v.by_owner(kind, "nobody"),
            lambda v: v.by_label(kind, "team", "pod-group-name", "g"),
            lambda v: v.by_label(kind, "", "pod-group-name", "g"),
            lambda v: v.by_label(kind, "team", "other", "c"),
            lambda v: [v.get(kind, "team", "d"), v.get(kind, "team", "none")],
        ):
            assert list(ask(view)) == list(ask(truth))
        await scene.api.delete(kind, "team", "c")
        await scene.until(lambda: view.get(kind, "team", "c") is None)
        assert [o["metadata"]["name"] for o in view.by_owner(kind, "u")] == ["b", "d"]

    play(act)


def test_an_expired_watch_begins_again_and_tells_only_the_difference() -> None:
    async def act(scene: Scene) -> None:
        await scene.create(config("kept"))
        await scene.until(lambda: len(scene.heard) == 4)
        scene.api.refused[kinds.CONFIG_MAP] = Expired("compacted")
        scene.api.fail(kinds.CONFIG_MAP, Expired("compacted"))
        await scene.until(lambda: scene.api.since.count((kinds.CONFIG_MAP, None)) >= 3)
        await scene.api.delete(kinds.CONFIG_MAP, "team", "a")
        await scene.create(config("new"))
        del scene.api.refused[kinds.CONFIG_MAP]
        await scene.until(lambda: len(scene.heard) == 6)

    assert play(act).heard[4:] == [("Deleted", "a", True), ("Added", "new", False)]


def test_a_broken_watch_is_resumed_and_its_trouble_told() -> None:
    async def act(scene: Scene) -> None:
        cache, kind = scene.cache, kinds.CONFIG_MAP
        scene.api.refused[kind] = Unavailable("the API server cannot be reached")
        scene.api.fail(kind, Unavailable("gone"))
        await scene.until(lambda: kind in cache.watch_errors and "reached" in cache.watch_errors[kind])
        assert cache.watch_errors[kind] == "cannot follow configmaps: the API server cannot be reached"
        assert cache.view.get(kind, "team", "a") is not None  # what was seen last stays
        await scene.create(config("b"))
        del scene.api.refused[kind]
        await scene.until(lambda: cache.view.get(kind, "team", "b") is not None)
        assert not cache.watch_errors
        resumed = [since for k, since in scene.api.since if k is kind][1:]
        assert None not in resumed

    play(act)


@pytest.mark.parametrize(
    "refusal", [NotFound("the server could not find the requested resource"), Unsupported("it can only be listed")]
)
def test_a_kind_that_the_cluster_lacks_is_empty_and_keeps_nobody_waiting(refusal: ApiError) -> None:
    scene = Scene()
    scene.api.refused[kinds.CONFIG_MAP] = refusal

    async def run() -> None:
        task = asyncio.create_task(scene.cache.run())
        async with asyncio.timeout(200):
            await scene.cache.synced.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())
    assert list(scene.cache.view.all(kinds.CONFIG_MAP)) == []
    assert "the cluster has no configmaps" in scene.cache.watch_errors[kinds.CONFIG_MAP]
