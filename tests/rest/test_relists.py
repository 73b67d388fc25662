"""After a watch that expired everything is listed again: only what differs is news, readers see it at once, and nobody hurries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, cast

import pytest
from tests.waiting import PATIENCE

from rowlock import kinds, objects
from rowlock.api import Change
from rowlock.controllers.supervisor import back_off
from rowlock.errors import Expired
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.cluster_view import reflector
from rowlock.rest.informers import InformerCache


class Listing:
    """An API whose watch of pods tells of `pods`, and then expires as often as `expire` is called; other kinds are empty."""

    def __init__(self, *pods: Object) -> None:
        self.pods: Iterable[Object] = pods
        self.listed = 0
        self._expired = asyncio.Event()

    def expire(self, *pods: Object) -> None:
        """The next list shows these."""
        self.pods = pods
        self._expired.set()

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
        if kind is kinds.POD:
            self.listed += 1
            for pod in self.pods:
                yield Change("Added", objects.revision(pod), kind, pod)
                await asyncio.sleep(0)  # a list takes its time
        yield Change("Bookmark", 9, kind)
        if kind is kinds.POD:
            await self._expired.wait()
            self._expired.clear()
            raise Expired("compacted")
        await asyncio.Event().wait()


def pod(name: str, revision: int = 1) -> Object:
    owner = {"uid": f"job-of-{name}", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "resourceVersion": str(revision),
            "ownerReferences": [owner],
        }
    }


def play(act: Callable[[Listing, InformerCache, list[str]], Awaitable[None]], *pods: Object) -> None:
    async def run() -> None:
        api, told = Listing(*pods), list[str]()
        cache = InformerCache(cast(Any, api))
        work = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        cache.subscribe(told.append)
        await act(api, cache, told)
        work.cancel()
        await asyncio.wait([work])

    asyncio.run(run())


def versions(cache: InformerCache) -> dict[str, int]:
    return {objects.name(pod): objects.revision(pod) for pod in cache.pods()}


async def until(cache: InformerCache, condition: Callable[[], bool]) -> None:
    assert await cache.wait_until("", condition, PATIENCE)


def test_only_what_differs_is_news() -> None:
    async def act(api: Listing, cache: InformerCache, told: list[str]) -> None:
        api.expire(pod("a"), pod("b", 2), pod("d"))
        await until(cache, lambda: api.listed == 2 and "" in told)
        assert versions(cache) == {"a": 1, "b": 2, "d": 1}
        assert sorted(told) == ["", "job-of-b", "job-of-c", "job-of-d"], "nobody looks at the job of a again"

    play(act, pod("a"), pod("b"), pod("c"))


def test_readers_see_the_old_pods_or_the_new_ones() -> None:
    async def act(api: Listing, cache: InformerCache, told: list[str]) -> None:
        old, new = versions(cache), {name: 2 for name in "cde"}
        api.expire(*(pod(name, 2) for name in "cde"))
        seen: list[dict[str, int]] = []
        while versions(cache) != new:
            await asyncio.sleep(0)
            seen.append(versions(cache))
        assert all(one in (old, new) for one in seen) and old in seen

    play(act, *(pod(name) for name in "abc"))


def test_a_long_difference_leaves_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "_CHANGES_AT_ONCE", 3)
    monkeypatch.setattr(reflector, "TurnBudget", lambda: Eager())

    class Eager:
        async def pause_if_due(self) -> None:
            await asyncio.sleep(0)

    async def act(api: Listing, cache: InformerCache, told: list[str]) -> None:
        api.expire(*(pod(f"p{n}", 2) for n in range(20)))
        counts: set[int] = set()
        while sum(v == 2 for v in versions(cache).values()) < 20:
            await asyncio.sleep(0)
            counts.add(sum(v == 2 for v in versions(cache).values()))
        assert len(counts) > 10

    play(act, *(pod(f"p{n}") for n in range(20)))


def test_a_watch_that_expires_again_and_again_is_not_begun_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    class Impatient(Listing):
        async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
            if kind is kinds.POD and self.listed > 0:
                self.listed += 1
                raise Expired("compacted")
            async for change in super().watch(kind, namespace, **options):
                yield change

    def note(failures: int, first: float, longest: float) -> float:
        delays.append(back_off(failures, first, longest))
        return 0.0

    monkeypatch.setattr(reflector, "back_off", note)

    async def run() -> None:
        api = Impatient(pod("a"))
        cache = InformerCache(cast(Any, api))
        work = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        api.expire()
        while len(delays) < 10:
            await asyncio.sleep(0)
        assert versions(cache) == {"a": 1}, "what is known counts meanwhile"
        work.cancel()
        await asyncio.wait([work])

    asyncio.run(run())
    assert delays[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4] and max(delays) == 10.0


def test_the_same_version_of_an_object() -> None:
    one = pod("a")
    assert objects.is_same_version(one, one) and objects.is_same_version(one, pod("a"))
    assert not objects.is_same_version(None, one) and not objects.is_same_version(one, pod("a", 2))
    unstored: Object = {"metadata": {"name": "a"}}
    assert not objects.is_same_version(unstored, dict(unstored)), "what has no version may differ"
    assert objects.key(one) == Key("n", "a")
