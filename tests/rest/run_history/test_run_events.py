"""Events of runs: none is lost while the recorder waits for the archive, none is read before anybody knows whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.rest.run_history.test_standby import NAMESPACE, Waiting, play

from rowlock import kinds, objects
from rowlock.archive.archive import Archive
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.run_history.run_events import EarlyEvents, LeavingRuns
from rowlock.rest.run_history.run_notes import new_notes
from rowlock.storage.store import Store
from rowlock.workloads.projects import Project


def event(name: str, job: Object) -> Object:
    about = {"kind": "PyTorchJob", "name": objects.name(job), "namespace": NAMESPACE, "uid": objects.uid(job)}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "message": name}


def test_the_ends_of_programs_reach_a_run_that_has_been_deleted() -> None:
    async def body() -> None:
        job = {
            "kind": "PyTorchJob",
            "metadata": {"name": "a", "namespace": NAMESPACE, "uid": "j", "creationTimestamp": None},
        }
        notes = new_notes(job, cast(Project, SimpleNamespace(name="p")), "", 1.0)
        notes.pods = {"runs": {"status": {"phase": "Running"}}, "over": {"status": {"phase": "Succeeded"}}}
        leaving = LeavingRuns()
        assert leaving.keep(notes) == ["runs", "over"]
        assert leaving.notes_of({"involvedObject": {"uid": "runs"}}) is notes
        assert leaving.notes_of({"involvedObject": {"uid": "over"}}) is None

    asyncio.run(body())


def test_early_events_are_bounded_in_events_and_leave_when_taken() -> None:
    early = EarlyEvents(3)
    for number in range(5):
        early.keep("a" if number < 2 else "b", {"n": number})
    assert early.take("a") == [{"n": 0}, {"n": 1}]
    assert early.take("a") == []
    early.keep("c", {"n": 5})
    early.keep("c", {"n": 6})
    early.keep("c", {"n": 7})
    assert early.take("b") == [{"n": 2}]
    assert early.take("c") == [{"n": 5}, {"n": 6}]


def test_an_event_that_comes_while_the_archive_is_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(waiting: Waiting) -> None:
        job = await create_recorded(waiting)
        uid = objects.uid(job)
        reading, may_go_on, read = asyncio.Event(), asyncio.Event(), waiting.archive.read

        async def read_slowly(query: Callable[..., Any], *arguments: Any) -> Any:
            if query.__name__ == "<lambda>":  # a look at one run
                reading.set()
                await may_go_on.wait()
            return await read(query, *arguments)

        monkeypatch.setattr(waiting.archive, "read", read_slowly)
        recording = asyncio.create_task(waiting.recorder.run())
        try:
            async with asyncio.timeout(200):
                await reading.wait()
                await waiting.store.create(kinds.EVENT, event("late", job))
                while waiting.recorder._early_events._count == 0:
                    await asyncio.sleep(0)
                may_go_on.set()
                while uid not in waiting.recorder._runs:
                    await asyncio.sleep(0)
            assert [one["message"] for one in waiting.recorder._runs[uid].events()] == ["late"]
        finally:
            recording.cancel()
            await asyncio.wait([recording])

    play(tmp_path, act)


def test_a_reader_beside_a_look_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks at one job, both without notes, made two notes: the events of the first were gone."""

    async def act(waiting: Waiting) -> None:
        job = await create_recorded(waiting)
        uid = objects.uid(job)
        reads, read = list[asyncio.Event](), waiting.archive.read

        async def read_slowly(query: Callable[..., Any], *arguments: Any) -> Any:
            if query.__name__ == "<lambda>":  # a look at one run
                reads.append(asyncio.Event())
                await reads[-1].wait()
            return await read(query, *arguments)

        monkeypatch.setattr(waiting.archive, "read", read_slowly)
        recording = asyncio.create_task(waiting.recorder.run())
        try:
            async with asyncio.timeout(200):
                while not reads:
                    await asyncio.sleep(0)
                waiting.recorder._dirty[uid] = None  # the job changes, and is read
                reading = asyncio.create_task(waiting.recorder.catch_up(uid))
                while waiting.recorder._dirty:
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                reads[0].set()
                while uid not in waiting.recorder._runs:
                    await asyncio.sleep(0)
                await waiting.store.create(kinds.EVENT, event("late", job))
                while not waiting.recorder._runs[uid].events():
                    await asyncio.sleep(0)
                for later in reads:
                    later.set()
                await reading
            assert [one["message"] for one in waiting.recorder._runs[uid].events()] == ["late"]
        finally:
            recording.cancel()
            await asyncio.wait([recording])

    play(tmp_path, act)


async def create_recorded(waiting: Waiting) -> Object:
    """A job whose run is in the archive, and in nobody's memory."""
    job = await waiting.create("train")
    await record_until(waiting, lambda: objects.uid(job) in waiting.recorder._runs)
    assert await waiting.archive.settle(200)
    return job


async def record_until(waiting: Waiting, condition: Callable[[], bool]) -> None:
    recording = asyncio.create_task(waiting.recorder.run())
    async with asyncio.timeout(200):
        while not condition():
            await asyncio.sleep(0.001)
    recording.cancel()
    await asyncio.wait([recording])


def test_events_are_read_once_the_cache_can_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster has more events than pods: while it is being read they would keep everybody waiting."""

    async def run() -> list[bool]:
        store = Store.open(None)
        rest = RestApi(store, RestSettings(user="ana"), archive=Archive(tmp_path / "archive"), index_events=True)
        known: list[bool] = []
        listing = store.list

        async def list_and_note(kind: kinds.Kind, *arguments: Any, **options: Any) -> Any:
            if kind is kinds.EVENT:
                known.append(rest.cache.can_answer())
            return await listing(kind, *arguments, **options)

        monkeypatch.setattr(store, "list", list_and_note)
        running = asyncio.create_task(rest.run())
        async with asyncio.timeout(200):
            while len(known) < 2:  # the index and the recorder
                await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])
        return known

    assert asyncio.run(run()) == [True, True]
