"""Of a submitted job that has ended nothing runs on: at once when it failed, after the grace of its other ranks when it succeeded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.waiting import PATIENCE

from rowlock import kinds
from rowlock.api import Api
from rowlock.errors import ApiError, Forbidden, NotFound
from rowlock.kube_evidence import ended_jobs
from rowlock.kube_evidence.ended_jobs import EndedJobs
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.phase import phase_and_message


class Played:
    """The cache of jobs, and the API that is written to; `refusals` are its next answers."""

    def __init__(self, *refusals: ApiError) -> None:
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, list[Object]] = {}
        self.refusals = list(refusals)
        self.written: list[Any] = []
        self.notify: Callable[[str], None] = lambda uid: None

    def subscribe(self, notify: Callable[[str], None]) -> None:
        self.notify = notify

    def job_uids(self) -> list[str]:
        return list(self.jobs)

    def job(self, uid: str) -> Object | None:
        return self.jobs.get(uid)

    def pods_of(self, uid: str) -> list[Object]:
        return self.own_pods(uid)

    def own_pods(self, uid: str) -> list[Object]:
        return self.pods.get(uid, [])

    async def patch(self, kind: Any, namespace: str, name: str, patch: Any, **_: Any) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        assert kind is kinds.PYTORCHJOB and namespace == "n"
        self.written.append((name, patch))
        self.show(name, failed=True, **patch["spec"]["runPolicy"])

    def show(self, name: str, *, failed: bool, **policy: str) -> None:
        conditions = [{"type": "Failed", "status": "True"}] if failed else []
        metadata = {"name": name, "namespace": "n", "uid": name, "annotations": {"rowlock.dev/restarts": "evicted"}}
        self.jobs[name] = {
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata,
            "spec": {"runPolicy": {"backoffLimit": 1, **policy}}, "status": {"conditions": conditions},
        }  # fmt: skip
        self.notify(name)


@pytest.mark.parametrize("refusal", [None, Forbidden("you may not"), NotFound("it has gone")])
def test_a_failed_job_is_stopped_once(monkeypatch: pytest.MonkeyPatch, refusal: ApiError | None) -> None:
    monkeypatch.setattr(ended_jobs, "_RETRY_S", 0.01)
    played = Played(*[refusal] if refusal else [])

    async def body() -> None:
        played.show("before", failed=True)
        played.show("runs", failed=False)
        task = asyncio.create_task(EndedJobs(cast(Api, played), cast(InformerCache, played)).run())
        while "before" not in dict(played.written) and played.jobs:
            await asyncio.sleep(0)
            if isinstance(refusal, NotFound) and not played.refusals:
                break
        played.show("later", failed=True)
        while "later" not in dict(played.written):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(body(), 200))
    expected = ["later"] if isinstance(refusal, NotFound) else ["before", "later"]
    assert [name for name, _ in played.written] == expected


def test_a_refused_write_holds_up_no_other_job() -> None:
    played = Played(Forbidden("you may not"))

    async def body() -> None:
        played.show("refused", failed=True)
        task = asyncio.create_task(EndedJobs(cast(Api, played), cast(InformerCache, played)).run())
        while played.refusals:
            await asyncio.sleep(0)
        played.show("other", failed=True)
        while not played.written:  # long before the first is tried again
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(body(), PATIENCE))
    assert [name for name, _ in played.written] == ["other"]


def pod(phase: str, **metadata: str) -> Object:
    return {"metadata": {"name": "p", **metadata}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "is_stopped"),
    [
        ([pod("Succeeded"), pod("Pending")], True),  # its init container waits for a master that has gone
        ([pod("Succeeded"), pod("Running")], True),
        ([pod("Succeeded"), pod("Failed")], False),
        ([pod("Running", deletionTimestamp="1970-01-01T00:00:00Z")], False),
        ([], False),
    ],
)
def test_the_late_ranks_of_a_job_that_succeeded_are_stopped_after_their_grace(
    monkeypatch: pytest.MonkeyPatch, pods: list[Object], is_stopped: bool
) -> None:
    """The grace is over a hundredth of a second after the first look. Another job, written later, shows that no more comes."""
    monkeypatch.setattr(ended_jobs, "remaining_grace", lambda job, now: max(0.0, 30.0 - now))
    played, times = Played(), iter([29.99])

    async def body() -> None:
        played.show("late", failed=False)
        played.jobs["late"]["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        played.pods["late"] = pods
        ended = EndedJobs(cast(Api, played), cast(InformerCache, played), lambda: next(times, 30.0))
        task = asyncio.create_task(ended.run())
        while is_stopped and not played.written:
            await asyncio.sleep(0)
        played.show("last", failed=True)
        while "last" not in dict(played.written):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(body(), PATIENCE))
    assert [name for name, _ in played.written] == (["late", "last"] if is_stopped else ["last"])


def test_what_the_pods_of_a_failed_job_tell_is_written_before_they_go() -> None:
    """The failed container may run again by then."""
    played = Played()
    again = {
        "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 7, "finishedAt": "1970-01-01T00:00:00Z"}},
    }
    played.pods["j"] = [{"metadata": {"name": "j-worker-0"}, "status": {"containerStatuses": [again]}}]

    async def body() -> None:
        played.show("j", failed=True)
        task = asyncio.create_task(EndedJobs(cast(Api, played), cast(InformerCache, played)).run())
        while not played.written:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(asyncio.wait_for(body(), PATIENCE))
    ((_, patch),) = played.written
    assert patch["metadata"]["annotations"] == {"rowlock.dev/first-failure": "j-worker-0 ended with exit code 7."}
    pods: list[Object] = []
    told = {
        **played.jobs["j"],
        **patch,
        "status": {"conditions": [{"type": "Failed", "status": "True", "message": "So."}]},
    }
    assert phase_and_message(told, pods, None) == ("Failed", "j-worker-0 ended with exit code 7. So.")
