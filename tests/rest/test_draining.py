"""Before a server is stopped it takes no new jobs and resumes none, for as long as it was told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.rest.conftest import CLUSTER, World, submission

from rowlock import kinds
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.admission.draining import Draining
from rowlock.apiserver.patch.patches import Patcher
from rowlock.errors import Unavailable
from rowlock.rest.app import RestApi
from rowlock.rest.call import Drain, RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

JOBS = "/api/v1/workloads/distributed"


class DrainedWorld:
    """A server as `LocalCluster` assembles it, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.draining = Draining(lambda: self.now)
        self.store = Store.open(None, admission=partial(AdmissionChain, draining=self.draining), patches=Patcher())
        self.rest = RestApi(
            self.store,
            RestSettings(user="ana", cluster_id=CLUSTER),
            drain=Drain(self.draining.begin, lambda: ["team/ends"]),
        )

    @asynccontextmanager
    async def run(self, _: Starlette) -> AsyncIterator[None]:
        for kind, obj in bootstrap.initial_objects():
            await self.store.create(kind, obj)
        task = asyncio.create_task(self.rest.run())
        yield
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def drained() -> DrainedWorld:
    return DrainedWorld()


@pytest.fixture
def client(drained: DrainedWorld) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=list(drained.rest.routes), lifespan=drained.run)) as client:
        yield client


def test_while_drained_no_job_begins(client: TestClient, drained: DrainedWorld) -> None:
    first = client.post(JOBS, json=submission(projectId="default"))
    assert first.status_code == 202, first.text
    identity = first.json()["workloadId"]
    assert client.post(f"{JOBS}/{identity}/suspend").status_code == 202

    assert client.post("/api/v1/drain", params={"seconds": "60"}).status_code == 202
    refused = client.post(JOBS, json=submission(projectId="default", name="second"))
    assert refused.status_code == 503 and "takes no new jobs: submit again when it is back" in refused.json()["message"]
    refused = client.post(f"{JOBS}/{identity}/resume")
    assert refused.status_code == 503 and "resumes no jobs" in refused.json()["message"]
    job = drained.store.view.get(kinds.PYTORCHJOB, "runai-default", "dist-train1")
    assert job is not None and job["spec"]["runPolicy"]["suspend"] is True
    assert client.post(f"{JOBS}/{identity}/suspend").status_code == 202, "what stops jobs goes on"

    drained.now = 61.0  # the time is over
    assert client.post(f"{JOBS}/{identity}/resume").status_code == 202
    assert client.post(JOBS, json=submission(projectId="default", name="second")).status_code == 202


def test_jobs_of_all_kinds_begin_no_more_and_parts_of_those_there_go_on() -> None:
    draining = Draining(lambda: 0.0)
    draining.begin(60.0)

    def owned(kind: str) -> dict[str, Any]:
        return {"metadata": {"name": "x", "ownerReferences": [{"kind": kind}]}}

    for kind in (*kinds.WORKLOADS, kinds.POD):
        with pytest.raises(Unavailable, match="takes no new jobs"):
            draining.check_create(kind, {"metadata": {"name": "x"}})
    with pytest.raises(Unavailable, match="takes no new jobs"):
        draining.check_create(kinds.BATCH_JOB, owned("CronJob"))
    for kind, owner in ((kinds.BATCH_JOB, "JobSet"), (kinds.JOB_SET, "TrainJob"), (kinds.POD, "Job")):
        draining.check_create(kind, owned(owner))
    for kind in (kinds.BATCH_JOB, kinds.JOB_SET, kinds.TRAIN_JOB):
        with pytest.raises(Unavailable, match="resumes no jobs"):
            draining.check_update(kind, {"spec": {"suspend": True}}, {"metadata": {}, "spec": {"suspend": False}})
        draining.check_update(kind, {"spec": {"suspend": False}}, {"metadata": {}, "spec": {"suspend": True}})


@pytest.mark.parametrize("seconds", ["", "0", "-1", "3601", "1.5", "²", "nan", "1" * 5000])
def test_seconds_are_a_whole_number_within_the_hour(client: TestClient, drained: DrainedWorld, seconds: str) -> None:
    answer = client.post("/api/v1/drain", params={"seconds": seconds})
    assert (answer.status_code, answer.json()["message"]) == (400, "seconds must be a whole number from 1 to 3600")
    assert not drained.draining.is_active


def test_a_parameter_that_there_is_not_is_refused(client: TestClient) -> None:
    answer = client.post("/api/v1/drain", params={"second": "5"})
    assert answer.status_code == 400 and "did you mean" in answer.json()["message"].lower()


def test_pods_that_end_are_told(client: TestClient) -> None:
    assert client.get("/api/v1/drain/pods").json() == {"endingPods": ["team/ends"]}
    assert client.get("/api/v1/drain/pods", params={"seconds": "5"}).status_code == 400


def test_a_cluster_of_others_is_not_drained(world: World) -> None:
    assert world.client.get("/api/v1/drain/pods").status_code == 405
    answer = world.client.post("/api/v1/drain", params={"seconds": "5"})
    assert answer.json()["message"] == "this server cannot be drained: its cluster is somebody else's"
    assert answer.status_code >= 400
