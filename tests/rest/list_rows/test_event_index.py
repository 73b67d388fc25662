"""The index of events: what it answers is what a list answers, through changes, lost watches and too many events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.waiting import until_async as until

from rowlock import kinds, objects
from rowlock.objects import Object, with_field
from rowlock.rest import event_index
from rowlock.rest.event_index import EventIndex
from rowlock.storage.store import Store

JOB: Object = {"metadata": {"name": "train", "namespace": "team", "uid": "u1"}}


def event(name: str, about: str, reason: str = "Started", namespace: str = "team", **more: Any) -> Object:
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}, "reason": reason,
        "involvedObject": {"kind": "Pod", "name": about, "namespace": namespace}, "message": name, **more,
    }  # fmt: skip


def play(act: Callable[[Store, EventIndex], Awaitable[None]], *, max_events: int = 100, before: int = 0) -> None:
    async def run() -> None:
        store = Store.open(None)
        for namespace in ("team", "other"):
            metadata = {"name": namespace}
            await store.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for number in range(before):
            await store.create(kinds.EVENT, event(f"e{number}", f"train-worker-{number}"))
        index = EventIndex(store, max_events)
        following = asyncio.create_task(index.run())
        try:
            await until(lambda: index.is_complete or index._count > max_events)
            await act(store, index)
        finally:
            following.cancel()
            await asyncio.wait([following])

    asyncio.run(run())


def names(index: EventIndex, job: Object = JOB) -> set[str]:
    return {objects.name(e) for e in index.about("team", job)}


def test_events_are_found_by_what_they_are_about() -> None:
    async def act(store: Store, index: EventIndex) -> None:
        for name, about in (("pod", "train-worker-0"), ("job", "train"), ("group", "pg-train-u1"), ("no", "trains")):
            await store.create(kinds.EVENT, event(name, about))
        await store.create(kinds.EVENT, event("elsewhere", "train", namespace="other"))
        await until(lambda: index._count == 5)
        assert names(index) == {"pod", "job", "group"}
        found = next(e for e in index.about("team", JOB) if objects.name(e) == "job")
        assert found["message"] == "job" and found["metadata"]["uid"]

    play(act)


def test_changes_and_deletions_are_followed() -> None:
    async def act(store: Store, index: EventIndex) -> None:
        made = await store.create(kinds.EVENT, event("e", "train-worker-0", "FailedCreatePod"))
        await until(lambda: names(index) == {"e"})
        assert [objects.name(e) for e in index.failed_creates("team")] == ["e"]
        await store.update(kinds.EVENT, with_field(made, "count", 7))
        await until(lambda: [e.get("count") for e in index.about("team", JOB)] == [7])
        await store.delete(kinds.EVENT, "team", "e")
        await until(lambda: not names(index))
        assert not list(index.failed_creates("team")) and index._count == 0 and not index._namespaces

    play(act)


def test_what_was_there_before_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_index, "PAGE", 3)

    async def act(store: Store, index: EventIndex) -> None:
        assert index.is_complete and names(index) == {f"e{number}" for number in range(10)}

    play(act, before=10)


@pytest.mark.parametrize("before", [0, 10])
def test_too_many_events_are_not_kept_and_that_is_known(before: int) -> None:
    async def act(store: Store, index: EventIndex) -> None:
        for number in range(before, 10):
            await store.create(kinds.EVENT, event(f"e{number}", "train"))
        await until(lambda: index._count == 5)
        await until(lambda: not index.is_complete)

    play(act, max_events=4, before=before)
