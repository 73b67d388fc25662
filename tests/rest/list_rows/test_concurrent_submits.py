"""Two hundred submits at once: none is lost and none doubled."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
from starlette.applications import Starlette

from rowlock import kinds, objects
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage.store import Store

NAMES = 100


def test_two_hundred_submits_at_once_lose_and_double_nothing() -> None:
    """Each name comes twice: one of the two is made, the other is told that the name is taken."""

    async def submit_all() -> tuple[Counter[int], list[str], list[str]]:
        store = Store.open(None)
        rest = RestApi(store, RestSettings(user="ana"))
        running = asyncio.create_task(rest.run())
        transport = httpx.ASGITransport(app=Starlette(routes=rest.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=200) as client:
            made = await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})
            project = made.json()["id"]

            async def submit(number: int) -> httpx.Response:
                spec = {"image": "i", "numWorkers": 1, "distributedFramework": "PyTorch"}
                body = {"name": f"job-{number % NAMES}", "projectId": project, "spec": spec}
                return await client.post("/api/v1/workloads/distributed", json=body)

            answers = await asyncio.gather(*(submit(number) for number in range(2 * NAMES)))
            listed = (await client.get("/api/v1/workloads?limit=500")).json()["workloads"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        stored = [objects.name(job) for job in store.view.all(kinds.PYTORCHJOB)]
        ids = {one.json()["workloadId"] for one in answers if one.status_code == 202}
        assert {one["id"] for one in listed} == ids
        return Counter(one.status_code for one in answers), stored, [one["name"] for one in listed]

    codes, stored, listed = asyncio.run(submit_all())
    assert codes == {202: NAMES, 409: NAMES}
    assert sorted(stored) == sorted(listed) == sorted(f"job-{number}" for number in range(NAMES))
