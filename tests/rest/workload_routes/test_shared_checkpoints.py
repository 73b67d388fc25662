"""One checkpoint directory, one job that writes in it."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
from starlette.applications import Starlette
from tests.rest.conftest import World, submission

from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage.store import Store

FROM_FIRST = [{"name": "rowlock.dev/resume-from", "value": "first-uid"}]


def test_a_second_job_that_goes_on_from_the_same_run_is_refused_until_the_first_is_stopped(world: World) -> None:
    world.project()
    first = world.submit(name="a", annotations=FROM_FIRST)
    assert first.status_code == 202
    refused = world.submit(name="b", annotations=FROM_FIRST)
    assert refused.status_code == 409 and "in which a (" in refused.text and "`rowlock suspend a`" in refused.text
    assert world.submit(name="c").status_code == 202, "who goes on from nothing shares nothing"
    routes = "/api/v1/workloads/distributed"
    world.client.post(f"{routes}/{first.json()['workloadId']}/suspend")
    assert world.submit(name="b", annotations=FROM_FIRST).status_code == 202
    again = world.client.post(f"{routes}/{first.json()['workloadId']}/resume")
    assert again.status_code == 409 and "in which b (" in again.text


def test_of_many_jobs_at_one_moment_from_the_same_run_one_is_accepted() -> None:
    """No two get past the check before the first of them is there to be seen."""

    async def submit_all() -> list[httpx.Response]:
        store = Store.open(None)
        rest = RestApi(store, RestSettings(user="ana"))
        running = asyncio.create_task(rest.run())
        transport = httpx.ASGITransport(app=Starlette(routes=rest.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=200) as client:
            await client.post("/api/v1/org-unit/projects", json={"name": "team-a"})
            path = "/api/v1/workloads/distributed"
            suspended = await client.post(path, json=submission(name="stopped", annotations=FROM_FIRST, clusterId=""))
            one = f"{path}/{suspended.json()['workloadId']}"
            assert (await client.post(f"{one}/suspend")).status_code == 202
            bodies = [submission(name=f"job-{number}", annotations=FROM_FIRST, clusterId="") for number in range(10)]
            submits = [client.post(path, json=body) for body in bodies]
            answers = await asyncio.gather(*submits[:5], client.post(f"{one}/resume"), *submits[5:])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return list(answers)

    answers = asyncio.run(submit_all())
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 10}, [one.text for one in answers]
    refusals = [answer.json()["message"] for answer in answers if answer.status_code == 409]
    assert all("overwrite each other's" in message for message in refusals)
