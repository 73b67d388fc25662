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
from rowlock.objects import Object, with_field
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history import standby
from rowlock.rest.run_history.recorder import RunRecorder
from rowlock.rest.run_history.standby import Standby
from rowlock.storage.store import Store
from rowlock.workloads import projects

NAMESPACE = "runai-team-a"


class Waiting:
    """A server's recorder, its informer cache, and the archive that another server writes (here: by hand)."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(None)
        self.cache = InformerCache(self.store)
        self.archive = Archive(directory / "archive")
        self.recorder = RunRecorder(self.store, self.cache, self.archive, lambda: 1_800_000_000.0)
        self.standby = Standby(self.recorder, self.cache, self.archive)

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
        if not await self.archive.settle(20):
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
        await asyncio.wait_for(reading, 30)
        assert await waiting.recorded() == {"goes": "Deleted"}
        await asyncio.wait_for(waiting.standby.catch_up(), 30)

    play(tmp_path, act)


def test_a_record_that_does_not_come_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(standby, "_PATIENCE", 0.01)

    async def act(waiting: Waiting) -> None:
        await waiting.delete(await waiting.create("goes"))
        await asyncio.wait_for(waiting.standby.catch_up(), 30)
        monkeypatch.setattr(standby, "_PATIENCE", 3600.0)
        await asyncio.wait_for(waiting.standby.catch_up(), 30)

    play(tmp_path, act)
