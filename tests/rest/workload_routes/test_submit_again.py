"""Submits whose answer was lost, or that are sent again: the job is there once, and whoever asked for it hears so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from rowlock import kinds, objects
from rowlock.errors import ApiError, Forbidden, Timeout, Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage.store import Store

KEY = {"Idempotency-Key": "one"}
SPEC: dict[str, Any] = {"image": "i", "numWorkers": 1, "distributedFramework": "PyTorch"}
CLAIM = {"pvc": [{"claimName": "data", "path": "/data", "claimInfo": {"size": "1Gi"}}]}
VARIABLES = {"shellEnvironment": {"HOME": "/root"}}


class Lossy:
    """A store whose writes of some kinds fail as often as `faults` says: True, after the object was made; False, before."""

    def __init__(self) -> None:
        self.store = Store.open(None)
        self.faults: dict[Kind, list[tuple[ApiError, bool]]] = {}
        self.is_deaf = False
        """Whether reads fail, too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        if self.is_deaf:
            raise Unavailable("the API server cannot be reached")
        return await self.store.get(kind, namespace, name)

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        error, happens = self.faults[kind].pop(0) if self.faults.get(kind) else (None, True)
        made = await self.store.create(kind, obj, **options) if happens else obj
        if error is not None:
            raise error
        return made

    def names(self, kind: Kind) -> list[str]:
        return [objects.name(obj) for obj in self.store.view.all(kind, "runai-team-a")]


@asynccontextmanager
async def served(api: Lossy) -> AsyncIterator[httpx.AsyncClient]:
    face = RestApi(api, RestSettings(token=None, user="ana"))
    task = asyncio.create_task(face.run())
    transport = httpx.ASGITransport(Starlette(routes=face.routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})).status_code == 201
        yield client
    task.cancel()


async def submit(client: httpx.AsyncClient, headers: dict[str, str], **top: Any) -> httpx.Response:
    body = {"name": "job", "projectId": "team-a", "spec": {**SPEC, "storage": CLAIM}, **VARIABLES, **top}
    return await client.post("/api/v1/workloads/distributed", json=body, headers=headers)


def play(script: Callable[[Lossy, httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        api = Lossy()
        async with served(api) as client:
            await script(api, client)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [kinds.SECRET, kinds.PYTORCHJOB, kinds.PERSISTENT_VOLUME_CLAIM])
@pytest.mark.parametrize("error", [Timeout("no answer in time"), Unavailable("the connection broke")])
def test_what_was_made_counts_though_its_answer_was_lost(kind: Kind, error: ApiError) -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        api.faults[kind] = [(error, True)]
        answer = await submit(client, {})
        assert answer.status_code == 202, answer.text
        assert api.names(kinds.PYTORCHJOB) == ["job"] and api.names(kinds.PERSISTENT_VOLUME_CLAIM) == ["data"]
        (secret,) = api.store.view.all(kinds.SECRET, "runai-team-a")
        assert objects.meta(secret)["ownerReferences"][0]["name"] == "job"

    play(script)


def test_who_cannot_look_is_told_and_tries_again_with_his_key() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        api.faults[kinds.PYTORCHJOB] = [(Timeout("no answer in time"), True)]
        api.is_deaf = True
        answer = await submit(client, KEY, spec=SPEC)
        assert answer.status_code == 504
        api.is_deaf = False
        again = await submit(client, KEY, spec=SPEC)
        assert again.status_code == 202 and api.names(kinds.PYTORCHJOB) == ["job"], again.text
        assert (await submit(client, {"Idempotency-Key": "two"}, spec=SPEC)).status_code == 409, "it is another submit"

    play(script)


def test_the_same_key_is_the_same_workload() -> None:
    """Also where the server completes the name."""

    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        answers = [await submit(client, KEY, useGivenNameAsPrefix=True) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json()["workloadId"] == answers[1].json()["workloadId"]
        assert len(api.names(kinds.PYTORCHJOB)) == 1
        other = await submit(client, KEY, name="other", spec=SPEC)
        assert other.status_code == 202 and len(api.names(kinds.PYTORCHJOB)) == 2, "a key is of one name"

    play(script)


def test_a_key_without_end_is_refused() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        answer = await submit(client, {"Idempotency-Key": "k" * 256})
        assert answer.status_code == 400 and "the limit is 255" in answer.json()["message"]

    play(script)


def test_what_was_refused_leaves_nothing_behind() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        refusal = Forbidden("persistentvolumeclaims is forbidden")
        api.faults[kinds.PERSISTENT_VOLUME_CLAIM] = [(refusal, False)]
        answer = await submit(client, {})
        assert answer.status_code == 403 and answer.json()["message"] == refusal.message
        assert not api.names(kinds.PYTORCHJOB)

    play(script)


def test_a_refused_job_takes_its_secret_along() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        api.faults[kinds.PYTORCHJOB] = [(Forbidden("pytorchjobs is forbidden"), False)]
        assert (await submit(client, {})).status_code == 403
        assert not api.names(kinds.SECRET) and not api.names(kinds.PERSISTENT_VOLUME_CLAIM)

    play(script)


def test_a_job_of_an_earlier_try_gets_the_secrets_that_a_crash_has_left_without_owner() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        assert (await submit(client, KEY)).status_code == 202
        (secret,) = api.store.view.all(kinds.SECRET, "runai-team-a")
        orphan = {"metadata": {"ownerReferences": None}}
        await api.store.patch(kinds.SECRET, "runai-team-a", objects.name(secret), orphan)
        assert (await submit(client, KEY)).status_code == 202
        (secret,) = api.store.view.all(kinds.SECRET, "runai-team-a")
        assert objects.meta(secret)["ownerReferences"][0]["name"] == "job"

    play(script)


def test_a_job_of_an_earlier_try_is_not_taken_back() -> None:
    async def script(api: Lossy, client: httpx.AsyncClient) -> None:
        assert (await submit(client, KEY)).status_code == 202
        await api.store.delete(kinds.PERSISTENT_VOLUME_CLAIM, "runai-team-a", "data")
        api.faults[kinds.PERSISTENT_VOLUME_CLAIM] = [(Forbidden("no"), False)]
        assert (await submit(client, KEY)).status_code == 403
        assert api.names(kinds.PYTORCHJOB) == ["job"]
        assert (await submit(client, KEY)).status_code == 202, "the claim is made again"
        assert api.names(kinds.PERSISTENT_VOLUME_CLAIM) == ["data"]

    play(script)
