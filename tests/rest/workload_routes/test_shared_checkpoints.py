"""One checkpoint directory, one job that writes in it."""

from __future__ import annotations

from tests.rest.conftest import World

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
