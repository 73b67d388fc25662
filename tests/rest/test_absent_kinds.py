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
from rowlock.rest.cluster_view import reflector
from rowlock.rest.cluster_view.hidden_kinds import TOLD_AFTER_S, HiddenKinds
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


REFUSAL = Forbidden("queues is forbidden: user cannot list")


async def answer_of(api: Partial, path: str = "/api/v1/workloads") -> httpx.Response:
    face = RestApi(api, RestSettings(token=None, user="ana"))
    task = asyncio.create_task(face.run())
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(Starlette(routes=face.routes)), base_url="http://test"
        ) as client:
            return await client.get(path)
    finally:
        task.cancel()


@pytest.mark.parametrize("kind", [kinds.QUEUE, kinds.POD, kinds.NAMESPACE])
def test_what_a_cluster_refuses_to_show_is_the_answer(kind: Kind) -> None:
    answer = asyncio.run(answer_of(Partial({kind: REFUSAL})))
    assert answer.status_code == 403
    assert f"does not show {kind.plural} to this server: {REFUSAL.message}" in answer.json()["message"]


@pytest.mark.parametrize("kind", [kinds.NODE, kinds.POD_GROUP, kinds.CONFIG_MAP, kinds.JAXJOB])
def test_what_is_hidden_and_not_needed_is_said_beside_the_answer(kind: Kind) -> None:
    answer = asyncio.run(answer_of(Partial({kind: REFUSAL})))
    assert answer.status_code == 200
    assert f"does not show {kind.plural} to this server: {REFUSAL.message}" in answer.headers["warning"]
    assert "warning" not in asyncio.run(answer_of(Partial({}))).headers


def test_a_kind_that_is_forbidden_is_rarely_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "_REFUSED_DELAY", 0.01)

    async def run() -> None:
        api = Partial({kinds.QUEUE: REFUSAL})
        cache = InformerCache(api)
        task = asyncio.create_task(cache.run())
        assert await cache.wait_until("", cache.can_answer) and not cache.has_synced() and cache.knows_runs()
        assert not await cache.wait_until("", lambda: api.asked > 2, timeout=0.2), "a second time soon, and then seldom"
        task.cancel()

    asyncio.run(run())


def test_kinds_that_were_refused_are_asked_for_when_another_one_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights and credentials come back for all kinds at once, and nobody waits for the turn of each."""
    monkeypatch.setattr(reflector, "_REFUSED_DELAY", 0.01)
    monkeypatch.setattr(reflector, "_ABSENT_KIND_DELAY", 3600.0)

    async def run() -> None:
        api = Partial({kind: REFUSAL for kind in informers.WATCHED})
        cache = InformerCache(api)
        task = asyncio.create_task(cache.run())
        twice = 2 * len(informers.WATCHED)
        assert await cache.wait_until("", lambda: api.asked == twice, timeout=200), "each was refused twice"
        await asyncio.sleep(0)  # and waits
        api.refused.clear()
        cache.hidden.note_shown(kinds.QUEUE)
        assert await cache.wait_until("", cache.has_synced, timeout=200)
        task.cancel()

    asyncio.run(run())


def test_what_was_known_is_kept_and_a_short_refusal_is_not_told() -> None:
    now = [0.0]
    hidden = HiddenKinds(lambda: now[0])
    hidden.note_refusal(kinds.POD, "no", is_known=True)
    now[0] = TOLD_AFTER_S - 1
    hidden.note_refusal(kinds.POD, "no", is_known=True)
    hidden.require_necessary()
    now[0] = TOLD_AFTER_S + 1
    hidden.note_refusal(kinds.POD, "no", is_known=True)
    with pytest.raises(Forbidden, match="does not show pods"):
        hidden.require_necessary()
    hidden.note_shown(kinds.POD)
    hidden.require_necessary()
    assert hidden.sentences() == []


class WithoutNamespaces(Partial):
    """A cluster whose RBAC lets us make queues and no namespaces."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__({})
        self.refusal: ApiError | None = refusal

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        if kind is kinds.NAMESPACE and self.refusal is not None:
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


def test_a_project_whose_answer_was_lost_is_there() -> None:
    async def run() -> list[int]:
        api = WithoutNamespaces(Unavailable("the API server cannot be reached"))
        face = RestApi(api, RestSettings(token=None, user="ana"))
        task = asyncio.create_task(face.run())
        transport = httpx.ASGITransport(Starlette(routes=face.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            codes = [(await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})).status_code]
            api.refusal = None
            codes.append((await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})).status_code)
        task.cancel()
        return codes

    assert asyncio.run(run()) == [503, 201], "the queue of the first request is taken up by the second"
