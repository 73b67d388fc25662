"""The REST API over a cluster that does not serve, or does not show, every kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from rowlock import kinds
from rowlock.api import Change
from rowlock.errors import ApiError, Forbidden, NotFound, Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Object, name
from rowlock.rest import informers
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.informers import InformerCache
from rowlock.storage.store import Store


class Partial:
    """A store that refuses to follow some kinds, and counts how often it is asked."""

    def __init__(self, refused: dict[Kind, ApiError]) -> None:
        self.store, self.refused, self.asked = Store.open(None), refused, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def watch(self, kind: Kind, namespace: str = "", **options: Any) -> AsyncIterator[Change]:
        if kind in self.refused:
            self.asked += 1
            raise self.refused[kind]
        async for change in self.store.watch(kind, namespace, **options):
            yield change


def test_a_kind_that_is_not_served_counts_as_empty() -> None:
    async def run() -> None:
        cache = InformerCache(Partial({kinds.JAXJOB: NotFound("the server could not find the requested resource")}))
        task = asyncio.create_task(cache.run())
        await cache.wait_for_sync()
        assert cache.is_absent(kinds.JAXJOB) and not cache.is_absent(kinds.PYTORCHJOB)
        assert cache.rows() == []
        task.cancel()

    asyncio.run(run())


def test_a_kind_that_is_forbidden_is_named_and_rarely_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "_RETRY_DELAY", 0.01)

    async def run() -> None:
        api = Partial({kinds.QUEUE: Forbidden("queues is forbidden: user cannot list")})
        cache = InformerCache(api)
        task = asyncio.create_task(cache.run())
        synced = await cache.wait_until("", lambda: len(cache._synced) == len(informers.WATCHED), timeout=0.3)
        assert not synced
        assert api.asked <= 7  # 0.01 s doubled: 6 tries in 0.3 s; 30 without back-off
        task.cancel()

    asyncio.run(run())


def test_what_a_cluster_refuses_to_show_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        cache = InformerCache(Partial({kinds.QUEUE: Forbidden("queues is forbidden: user cannot list")}))
        task = asyncio.create_task(cache.run())

        async def wait_briefly(uid: str, condition: Any, timeout: float | None = 0.1) -> bool:
            return await InformerCache.wait_until(cache, uid, condition, 0.1)

        monkeypatch.setattr(cache, "wait_until", wait_briefly)
        with pytest.raises(Unavailable, match="queues yet: the cluster answers `queues is forbidden"):
            await cache.wait_for_sync()
        task.cancel()

    asyncio.run(run())


class WithoutNamespaces(Partial):
    """A cluster whose RBAC lets us make queues and no namespaces."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__({})
        self.refusal = refusal

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        if kind is kinds.NAMESPACE:
            raise self.refusal
        return await self.store.create(kind, obj, **options)


@pytest.mark.parametrize(
    ("refusal", "queues"),
    [
        (Forbidden("namespaces is forbidden: user cannot create"), {"department-default"}),
        (Unavailable("the API server cannot be reached"), {"department-default", "team-a"}),
    ],
)
def test_a_project_that_is_refused_midway_leaves_nothing_in_its_way(refusal: ApiError, queues: set[str]) -> None:
    async def run() -> tuple[httpx.Response, set[str]]:
        api = WithoutNamespaces(refusal)
        face = RestApi(api, RestSettings(token=None, user="ana"))
        task = asyncio.create_task(face.run())
        transport = httpx.ASGITransport(Starlette(routes=face.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})
        task.cancel()
        return answer, {name(queue) for queue in api.store.view.all(kinds.QUEUE)}

    answer, left = asyncio.run(run())
    assert answer.status_code == refusal.code and refusal.message in answer.json()["message"]
    assert left == queues, "a queue without a project is in the way of the next attempt"
