"""A server that does not record, because another one does: what it remembers, what its readers wait for, and how it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.archive.test_archive import run_record

from rowlock import kinds, objects
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.records import PodRecord
from rowlock.objects import Object, with_field
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history import standby
from rowlock.rest.run_history.recorder import RunRecorder
from rowlock.rest.run_history.standby import SeenPods, Standby
from rowlock.storage.store import Store
from rowlock.workloads import projects

NAMESPACE = "runai-team-a"
NOW = 1_800_000_000.0


class Waiting:
    """A server's recorder, its informer cache, and the archive that another server writes (here: by hand)."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(None)
        self.cache = InformerCache(self.store)
        self.archive = Archive(directory / "archive")
        self.now = NOW
        self.recorder = RunRecorder(self.store, self.cache, self.archive, lambda: self.now)
        self.standby = Standby(self.recorder, self.cache, self.archive, lambda: self.now)

    async def create(self, name: str) -> Object:
        spec = {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
            }
        }
        meta = {"name": name, "namespace": NAMESPACE}
        made = await self.store.create(
            kinds.PYTORCHJOB, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        )
        await self.seen(lambda: self.cache.job(objects.uid(made)) is not None)
        return made

    async def delete(self, job: Object) -> None:
        await self.store.delete(kinds.PYTORCHJOB, NAMESPACE, objects.name(job))
        await self.seen(lambda: self.cache.job(objects.uid(job)) is None)

    async def seen(self, condition: Callable[[], bool]) -> None:
        assert await self.cache.wait_until("", condition, 30)

    async def recorded(self) -> dict[str, str]:
        if not await self.archive.settle(200):
            return {}
        try:
            headers = await self.archive.read(database.read_headers)
        except FileNotFoundError:
            return {}  # nothing was ever handed over
        return {record.name: record.phase for record in headers}


def play(tmp_path: Path, act: Callable[[Waiting], Awaitable[None]]) -> None:
    async def run() -> None:
        waiting = Waiting(tmp_path)
        labels = {projects.QUEUE_LABEL: "team-a"}
        await waiting.store.create(
            kinds.NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        )
        work = [asyncio.create_task(waiting.cache.run()), asyncio.create_task(waiting.archive.run())]
        await waiting.cache.wait_for_sync()
        await act(waiting)
        for task in work:
            task.cancel()
        await asyncio.wait(work)

    asyncio.run(run())


def test_who_waits_forgets_what_was_recorded_elsewhere(tmp_path: Path) -> None:
    async def act(waiting: Waiting) -> None:
        stays, goes = await waiting.create("stays"), await waiting.create("goes")
        both = {objects.uid(stays), objects.uid(goes)}
        assert waiting.recorder.noted_jobs() == both
        first = waiting.standby.forget_recorded({})
        assert waiting.recorder.noted_jobs() == both, "nobody may have recorded them yet"
        await waiting.delete(goes)
        second = waiting.standby.forget_recorded(first)
        assert waiting.recorder.noted_jobs() == {objects.uid(goes)}, "it has gone since"
        assert waiting.standby.forget_recorded(second) == {} and not waiting.recorder.noted_jobs()

    play(tmp_path, act)


def test_what_came_and_went_while_nobody_recorded_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    async def act(waiting: Waiting) -> None:
        there, short = await waiting.create("there"), await waiting.create("short")
        done = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"}
        ended = with_field(short, "status", {"conditions": [done]})
        await waiting.store.update(kinds.PYTORCHJOB, ended, subresource="status")
        await waiting.seen(lambda: bool(objects.dig(waiting.cache.job(objects.uid(short)) or {}, "status.conditions")))
        await waiting.delete(short)
        waiting.now += 15  # until somebody is elected
        assert not waiting.recorder.is_recording
        for _ in range(2):  # it is elected, loses its Lease, and is elected again
            term = asyncio.create_task(waiting.recorder.run())
            while True:
                await asyncio.sleep(0)
                recorded: dict[str, str] = await waiting.recorded() if waiting.recorder.is_recording else {}
                if recorded.keys() == {"there", "short"} and recorded["short"] == "Completed":
                    break
                await asyncio.sleep(0.01)
            assert waiting.recorder.is_recording
            term.cancel()
            await asyncio.wait([term])
            assert not waiting.recorder.is_recording
        ends = {r.name: (r.finished, r.deleted) for r in await waiting.archive.read(database.read_headers)}
        assert ends == {"there": (None, None), "short": (NOW, NOW)}, "it ended when it went, not when it was recorded"
        await waiting.delete(there)

    play(tmp_path, act)


def test_a_reader_waits_for_the_record_of_what_it_saw_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_ASK_AGAIN", 0.01)
    monkeypatch.setattr(standby, "_PATIENCE", 3600.0)

    async def act(waiting: Waiting) -> None:
        job = await waiting.create("goes")
        await waiting.standby.catch_up()  # nothing has gone
        await waiting.delete(job)
        reading = asyncio.create_task(waiting.standby.catch_up())
        await asyncio.wait([reading], timeout=0.2)
        assert not reading.done()
        record: Any = run_record(objects.uid(job), name="goes", deleted=time.time(), phase="Deleted")
        waiting.archive.put("run", database.put_run(record))
        await asyncio.wait_for(reading, 200)
        assert await waiting.recorded() == {"goes": "Deleted"}
        await asyncio.wait_for(waiting.standby.catch_up(), 200)

    play(tmp_path, act)


def test_a_record_that_does_not_come_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(standby, "_PATIENCE", 0.01)

    async def act(waiting: Waiting) -> None:
        await waiting.delete(await waiting.create("goes"))
        await asyncio.wait_for(waiting.standby.catch_up(), 200)
        monkeypatch.setattr(standby, "_PATIENCE", 3600.0)
        await asyncio.wait_for(waiting.standby.catch_up(), 200)

    play(tmp_path, act)


async def create_pod(waiting: Waiting, job: Object, name: str) -> Object:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": objects.name(job), "uid": objects.uid(job)}
    meta = {"name": name, "namespace": NAMESPACE, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"containers": [{"name": "pytorch", "image": "x"}]}
    pod = await waiting.store.create(kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    started = {"name": "pytorch", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}
    status = {"phase": "Running", "containerStatuses": [started]}
    await waiting.store.update(kinds.POD, with_field(pod, "status", status), subresource="status")
    await waiting.seen(lambda: any(objects.phase(p) == "Running" for p in waiting.cache.own_pods(objects.uid(job))))
    return pod


async def delete_pod(waiting: Waiting, job: Object, pod: Object) -> None:
    await waiting.store.delete(kinds.POD, NAMESPACE, objects.name(pod))
    await waiting.seen(
        lambda: objects.uid(pod) not in {objects.uid(p) for p in waiting.cache.own_pods(objects.uid(job))}
    )


def test_pods_that_went_while_nobody_recorded_are_recorded_by_the_next_one(tmp_path: Path) -> None:
    """Of a job that is there, of one that has gone, and not of what the last leader had written."""

    async def act(waiting: Waiting) -> None:
        there, short = await waiting.create("there"), await waiting.create("short")
        waiting.standby._pods.begin()
        pods = {}
        for job, name in ((there, "there-worker-0"), (there, "there-worker-1"), (short, "short-master-0")):
            pods[name] = await create_pod(waiting, job, name)
        await waiting.standby._pods.look()
        written = PodRecord(objects.uid(pods["there-worker-1"]), objects.uid(there), "there-worker-1", 1.0, 2.0, {})
        waiting.archive.put("pod", database.put_pod(written))
        assert await waiting.archive.settle(200)
        for job, name in ((there, "there-worker-0"), (there, "there-worker-1"), (short, "short-master-0")):
            await delete_pod(waiting, job, pods[name])
        await waiting.delete(short)
        term = asyncio.create_task(waiting.recorder.run())
        found: dict[str, PodRecord] = {}
        while len(found) < 3:
            await waiting.recorder.catch_up("*")
            for job in (there, short):
                found |= {p.name: p for p in await waiting.archive.read(database.read_pods, objects.uid(job))}
        assert found["there-worker-1"] == written, "the last leader's word stays"
        for name in ("there-worker-0", "short-master-0"):
            assert found[name].deleted == NOW and found[name].body["status"]["phase"] == "Running"
        (run,) = await waiting.archive.read(lambda d: list(database.read_runs(d, "WHERE name = ?", ["short"])))
        assert run.phase == "Deleted" and run.body["lives"]["short-master-0"]
        term.cancel()
        await asyncio.wait([term])

    play(tmp_path, act)


def test_pods_that_went_are_forgotten_once_they_are_recorded_or_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(waiting: Waiting) -> None:
        job = await waiting.create("job")
        uid, now = objects.uid(job), [100.0]
        seen = SeenPods(waiting.cache, lambda: now[0])
        seen.begin()
        for number in range(4):
            pod = await create_pod(waiting, job, f"job-worker-{number}")
            await seen.look()
            now[0] += 1
            await delete_pod(waiting, job, pod)
            await seen.look()
        names = [objects.name(pod) for pod, _ in seen.gone_pods(uid)]
        assert names == [f"job-worker-{number}" for number in range(4)]
        seen.forget(before=102.0)
        assert [when for _, when in seen.gone_pods(uid)] == [103.0, 104.0]
        monkeypatch.setattr("rowlock.rest.run_history.standby.MOST_GONE", 1)
        await delete_pod(waiting, job, await create_pod(waiting, job, "job-worker-4"))
        assert len(seen.gone_pods(uid)) <= 1
        seen.stop()
        await create_pod(waiting, job, "job-worker-5")
        assert seen.gone_pods(uid) == [] and not seen._changed

    play(tmp_path, act)


def test_deletions_are_remembered_for_longer_while_the_archive_has_a_problem(tmp_path: Path) -> None:
    async def act(waiting: Waiting) -> None:
        job = await waiting.create("goes")
        await waiting.delete(job)
        earlier = waiting.standby.forget_recorded({})
        waiting.archive.problem = "the storage does not answer"
        for _ in range(3):
            earlier = waiting.standby.forget_recorded(earlier)
            assert waiting.recorder.noted_jobs() == {objects.uid(job)}, "nobody may be able to record it"
        waiting.archive.problem = ""
        waiting.standby.forget_recorded(earlier)
        assert not waiting.recorder.noted_jobs()

    play(tmp_path, act)


def test_what_the_last_leader_recorded_to_its_end_stays_as_it_was(tmp_path: Path) -> None:
    async def act(waiting: Waiting) -> None:
        recorded, unrecorded = await waiting.create("recorded"), await waiting.create("unrecorded")
        uid, moment = objects.uid(recorded), time.time()
        record = run_record(uid, name="recorded", deleted=moment, phase="Completed", verdict="All was well.")
        waiting.archive.put("run", database.put_run(record))
        assert await waiting.archive.settle(200)
        for job in (recorded, unrecorded):
            await waiting.delete(job)
        term = asyncio.create_task(waiting.recorder.run())
        while (await waiting.recorded()).get("unrecorded") != "Deleted":
            await asyncio.sleep(0.01)
        (kept,) = await waiting.archive.read(database.read_headers, "WHERE uid = ?", [uid])
        assert (kept.phase, kept.deleted, kept.verdict) == ("Completed", moment, "All was well.")
        term.cancel()
        await asyncio.wait([term])

    play(tmp_path, act)
